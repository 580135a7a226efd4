//! The words, by what they stand for. No word is in two of the lists.

/// Children, and the pronoun of each.
pub(super) const CHILDREN: &[(&str, &str)] = &[
    ("Lily", "she"),
    ("Tim", "he"),
    ("Ben", "he"),
    ("Sue", "she"),
    ("Tom", "he"),
    ("Mia", "she"),
    ("Max", "he"),
    ("Anna", "she"),
    ("Sam", "he"),
    ("Lucy", "she"),
    ("Jack", "he"),
    ("Amy", "she"),
];

pub(super) const ANIMALS: &[&str] = &[
    "cat", "dog", "bird", "fish", "bear", "frog", "duck", "cow", "pig", "bunny", "mouse", "fox",
    "lion", "bee", "owl", "bug",
];

pub(super) const TOYS: &[&str] = &[
    "ball", "doll", "kite", "drum", "robot", "puzzle", "train", "car", "teddy", "yo-yo", "block",
    "truck",
];

pub(super) const FOODS: &[&str] = &[
    "cake", "apple", "pie", "cookie", "egg", "pizza", "banana", "pear", "plum", "carrot", "muffin",
    "pancake",
];

pub(super) const CLOTHES: &[&str] =
    &["hat", "coat", "shoe", "sock", "dress", "shirt", "scarf", "boot", "cap", "glove"];

pub(super) const COLORS: &[&str] =
    &["red", "blue", "green", "yellow", "pink", "brown", "black", "white"];
