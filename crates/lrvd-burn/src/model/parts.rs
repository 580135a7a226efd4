//! Parts of a model: leaves that know their names, and structs that list their fields once.

use crate::adapter::AdaptedLinear;
use crate::parameters::{NamedParam, NamedParameter, NamedParameterMut};

/// One leaf of a model, to read.
#[derive(Debug)]
pub enum Leaf<'a> {
    /// A linear layer that can carry an adapter.
    Layer(&'a AdaptedLinear),
    /// Any other parameter.
    Parameter(NamedParameter<'a>),
}

/// One leaf of a model, to write.
#[derive(Debug)]
pub enum LeafMut<'a> {
    /// A linear layer that can carry an adapter.
    Layer(&'a mut AdaptedLinear),
    /// Any other parameter.
    Parameter(NamedParameterMut<'a>),
}

/// A model, or a part of one, that hands out its linear layers and parameters by name.
///
/// The leaves, [`AdaptedLinear`] and [`NamedParam`], know their names;
/// a struct of parts lists its fields once, with [`adapted_model!`](crate::adapted_model), and
/// `Option`s and `Vec`s of parts are parts. That connects any Burn model to everything here:
/// adapters, KL, statistics, pruning, optimiser, files. The order is that of the fields, the same
/// on every call.
pub trait AdaptedModel {
    /// Calls `visit` for every leaf.
    fn visit_leaves(&self, visit: &mut dyn FnMut(Leaf<'_>));

    /// The same, mutably.
    fn visit_leaves_mut(&mut self, visit: &mut dyn FnMut(LeafMut<'_>));

    /// Calls `visit` with path and layer for every linear layer that can carry an adapter.
    fn visit_layers(&self, visit: &mut dyn FnMut(&str, &AdaptedLinear)) {
        self.visit_leaves(&mut |leaf| {
            if let Leaf::Layer(layer) = leaf {
                visit(layer.path(), layer);
            }
        });
    }

    /// The same, mutably.
    fn visit_layers_mut(&mut self, visit: &mut dyn FnMut(&str, &mut AdaptedLinear)) {
        self.visit_leaves_mut(&mut |leaf| {
            if let LeafMut::Layer(layer) = leaf {
                let path = layer.shared_path();
                visit(&path, layer);
            }
        });
    }

    /// Calls `visit` for every parameter, adapters included.
    fn visit_parameters(&self, visit: &mut dyn FnMut(NamedParameter<'_>)) {
        self.visit_leaves(&mut |leaf| match leaf {
            Leaf::Layer(layer) => layer.each_parameter(visit),
            Leaf::Parameter(parameter) => visit(parameter),
        });
    }

    /// The same, to write.
    fn visit_parameters_mut(&mut self, visit: &mut dyn FnMut(NamedParameterMut<'_>)) {
        self.visit_leaves_mut(&mut |leaf| match leaf {
            LeafMut::Layer(layer) => layer.each_parameter_mut(visit),
            LeafMut::Parameter(parameter) => visit(parameter),
        });
    }
}

impl AdaptedModel for AdaptedLinear {
    fn visit_leaves(&self, visit: &mut dyn FnMut(Leaf<'_>)) {
        visit(Leaf::Layer(self));
    }

    fn visit_leaves_mut(&mut self, visit: &mut dyn FnMut(LeafMut<'_>)) {
        visit(LeafMut::Layer(self));
    }
}

impl<const D: usize> AdaptedModel for NamedParam<D> {
    fn visit_leaves(&self, visit: &mut dyn FnMut(Leaf<'_>)) {
        visit(Leaf::Parameter(self.as_leaf()));
    }

    fn visit_leaves_mut(&mut self, visit: &mut dyn FnMut(LeafMut<'_>)) {
        visit(LeafMut::Parameter(self.as_leaf_mut()));
    }
}

impl<P: AdaptedModel> AdaptedModel for Option<P> {
    fn visit_leaves(&self, visit: &mut dyn FnMut(Leaf<'_>)) {
        if let Some(part) = self {
            part.visit_leaves(visit);
        }
    }

    fn visit_leaves_mut(&mut self, visit: &mut dyn FnMut(LeafMut<'_>)) {
        if let Some(part) = self {
            part.visit_leaves_mut(visit);
        }
    }
}

impl<P: AdaptedModel> AdaptedModel for Vec<P> {
    fn visit_leaves(&self, visit: &mut dyn FnMut(Leaf<'_>)) {
        for part in self {
            part.visit_leaves(visit);
        }
    }

    fn visit_leaves_mut(&mut self, visit: &mut dyn FnMut(LeafMut<'_>)) {
        for part in self {
            part.visit_leaves_mut(visit);
        }
    }
}

/// Makes a struct an [`AdaptedModel`](crate::model::AdaptedModel) by listing the fields that are parts,
/// or an enum by listing its variants, each of one part.
///
/// ```
/// use lrvd_burn::adapted_model;
/// use lrvd_burn::adapter::AdaptedLinear;
/// use lrvd_burn::burn::tensor::{Device, Tensor};
/// use lrvd_burn::model::AdaptedModel;
/// use lrvd_burn::parameters::NamedParam;
///
/// struct Net {
///     layers: Vec<AdaptedLinear>,
///     scale: NamedParam<1>,
///     width: usize,
/// }
/// adapted_model!(Net { layers, scale });
///
/// enum Either {
///     One(Net),
///     Other(AdaptedLinear),
/// }
/// adapted_model!(enum Either { One, Other });
///
/// let device = Device::flex();
/// let layer = |path| AdaptedLinear::new(path, Tensor::ones([2, 2], &device), None);
/// let scale = NamedParam::new("scale", Tensor::ones([2], &device));
/// let net = Either::One(Net { layers: vec![layer("a"), layer("b")], scale, width: 2 });
/// let mut names = Vec::new();
/// net.visit_parameters(&mut |p| names.push(p.name.to_owned()));
/// assert_eq!(names, ["a.weight", "b.weight", "scale"]);
/// # if let Either::One(net) = net { assert_eq!(net.width, 2); }
/// # let _ = Either::Other(layer("c"));
/// ```
#[macro_export]
macro_rules! adapted_model {
    (enum $name:ident { $($variant:ident),+ $(,)? }) => {
        impl $crate::model::AdaptedModel for $name {
            fn visit_leaves(&self, visit: &mut dyn FnMut($crate::model::Leaf<'_>)) {
                match self {
                    $(Self::$variant(part) => {
                        $crate::model::AdaptedModel::visit_leaves(part, visit);
                    })+
                }
            }

            fn visit_leaves_mut(&mut self, visit: &mut dyn FnMut($crate::model::LeafMut<'_>)) {
                match self {
                    $(Self::$variant(part) => {
                        $crate::model::AdaptedModel::visit_leaves_mut(part, visit);
                    })+
                }
            }
        }
    };
    ($name:ident { $($field:ident),+ $(,)? }) => {
        impl $crate::model::AdaptedModel for $name {
            fn visit_leaves(&self, visit: &mut dyn FnMut($crate::model::Leaf<'_>)) {
                $($crate::model::AdaptedModel::visit_leaves(&self.$field, visit);)+
            }

            fn visit_leaves_mut(&mut self, visit: &mut dyn FnMut($crate::model::LeafMut<'_>)) {
                $($crate::model::AdaptedModel::visit_leaves_mut(&mut self.$field, visit);)+
            }
        }
    };
}
