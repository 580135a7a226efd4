//! Keys and values of the tokens that a model has read.

use burn::tensor::Tensor;

use super::config::LlamaConfig;
use crate::batch::indices;
use crate::rope::Table;

/// Keys and values of every layer, for feeding a text piece by piece.
///
/// Starts empty and grows by doubling; a piece is written in place. Rows of the batch may be padded on either side and
/// in any piece: a padded column takes room and is never seen. No gradient flows into the cache.
///
/// # Shapes
///
/// | Name | Shape |
/// |---|---|
/// | keys, values of a layer | `[batch, key heads, columns, head width]`, keys after the rotation |
///
/// Memory: `2 · layers · batch · key heads · columns · head width` values of the compute type, up to twice that after
/// doubling.
#[derive(Clone, Debug, Default)]
pub struct KvCache {
    /// Keys and values of every layer, with room to spare.
    layers: Vec<Option<[Tensor<4>; 2]>>,
    mask: Option<Tensor<2>>,
    table: Option<Table>,
}

impl KvCache {
    /// An empty cache; it takes batch, type and device from the first piece.
    pub fn new() -> Self {
        Self::default()
    }

    /// Columns read so far, padding included.
    pub fn columns(&self) -> usize {
        self.mask.as_ref().map_or(0, |mask| mask.dims()[1])
    }

    /// Keys of layer `layer` after the rotation, `[batch, key heads, columns, head width]`; none before the first
    /// piece and beyond the last layer.
    pub fn keys(&self, layer: usize) -> Option<Tensor<4>> {
        self.held(layer, 0)
    }

    /// Values of layer `layer`, in the shape of the keys.
    pub fn values(&self, layer: usize) -> Option<Tensor<4>> {
        self.held(layer, 1)
    }

    fn held(&self, layer: usize, which: usize) -> Option<Tensor<4>> {
        let held = self.layers.get(layer)?.as_ref()?[which].clone();
        Some(held.narrow(2, 0, self.columns()))
    }

    /// Keeps the rows `rows` of the batch, in this order.
    pub(super) fn select_rows(&mut self, rows: &[usize]) {
        let Some(mask) = self.mask.take() else { return };
        let rows = indices(rows.iter().copied(), &mask);
        for store in self.layers.iter_mut().flatten().flatten() {
            *store = store.clone().select(0, rows.clone());
        }
        self.mask = Some(mask.select(0, rows));
    }

    /// Appends the mask of a new piece, and returns the whole.
    pub(super) fn extend(&mut self, mask: Tensor<2>) -> Tensor<2> {
        let whole = match self.mask.take() {
            None => mask,
            Some(past) => {
                assert_eq!(past.dims()[0], mask.dims()[0], "rows of a piece and of its cache");
                Tensor::cat(vec![past, mask], 1)
            }
        };
        self.mask.insert(whole).clone()
    }

    /// Rotations of at least `limit` positions.
    pub(super) fn table(&mut self, config: &LlamaConfig, limit: usize, like: &Tensor<2>) -> Table {
        let known = self.table.take().filter(|table| table.limit() >= limit);
        let device = like.device();
        let limit = limit.next_power_of_two();
        let table = known
            .unwrap_or_else(|| Table::new(&config.frequencies(), limit, &device, like.dtype()));
        self.table.insert(table).clone()
    }

    /// Appends keys and values of layer `layer`, `[batch, key heads, tokens, head width]`, for the piece whose mask came
    /// last, and returns everything read so far.
    pub(super) fn append(&mut self, layer: usize, piece: [Tensor<4>; 2]) -> [Tensor<4>; 2] {
        let columns = self.columns();
        if self.layers.len() <= layer {
            self.layers.resize_with(layer + 1, || None);
        }
        let [keys, values] = piece.map(Tensor::without_autodiff);
        let stores = match self.layers[layer].take() {
            None => [write(None, columns, keys), write(None, columns, values)],
            Some([old_keys, old_values]) => {
                [write(Some(old_keys), columns, keys), write(Some(old_values), columns, values)]
            }
        };
        self.layers[layer].insert(stores).clone().map(|store| store.narrow(2, 0, columns))
    }
}

/// Writes `piece` into the columns before `end`; in place where the store has one owner.
fn write(store: Option<Tensor<4>>, end: usize, piece: Tensor<4>) -> Tensor<4> {
    let [batch, heads, tokens, width] = piece.dims();
    let start = end - tokens;
    let store = match store {
        Some(store) if store.dims()[2] >= end => store,
        old => {
            let room = [batch, heads, end.next_power_of_two(), width];
            let store = Tensor::zeros(room, (&piece.device(), piece.dtype()));
            match old {
                None => store,
                Some(old) => {
                    let past = old.narrow(2, 0, start);
                    store.slice_assign([0..batch, 0..heads, 0..start, 0..width], past)
                }
            }
        }
    };
    store.slice_assign([0..batch, 0..heads, start..end, 0..width], piece)
}
