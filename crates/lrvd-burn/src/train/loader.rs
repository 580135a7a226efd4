//! Burn's own data loader as a source of batches.

use burn::data::dataloader::{DataLoader, DataLoaderIterator};
use serde::{Deserialize, Serialize};

use super::batch::Batch;
use super::batches::Batches;
use super::error::TrainError;

/// Where a loader stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoaderPosition {
    /// Epochs that were begun before this one.
    pub epoch: usize,
    /// Batches of this epoch that have been handed out.
    pub batches: usize,
}

/// The batches of a [`DataLoader`], epoch after epoch.
///
/// A loader knows no position: going to one means to start as many epochs as were begun before and to
/// read over the batches that were handed out. The loader must be as new when a run is resumed as it
/// was when the run began, with the same seed and one worker: several hand out batches in the order in
/// which they happen to be ready.
pub struct LoaderBatches<'a, I> {
    loader: &'a dyn DataLoader<Batch<I>>,
    epoch: Box<dyn DataLoaderIterator<Batch<I>> + 'a>,
    position: LoaderPosition,
}

impl<'a, I> LoaderBatches<'a, I> {
    /// The loader's first epoch.
    pub fn new(loader: &'a dyn DataLoader<Batch<I>>) -> Self {
        Self { loader, epoch: loader.iter(), position: LoaderPosition::default() }
    }

    fn next_epoch(&mut self) {
        self.epoch = self.loader.iter();
        self.position = LoaderPosition { epoch: self.position.epoch + 1, batches: 0 };
    }

    fn next_batch(&mut self) -> Result<Option<Batch<I>>, TrainError> {
        let Some(batch) = self.epoch.next() else { return Ok(None) };
        self.position.batches += 1;
        batch.map(Some).map_err(TrainError::other)
    }
}

impl<I> Batches for LoaderBatches<'_, I> {
    type Input = I;
    type Position = LoaderPosition;

    fn n_train(&self) -> usize {
        self.loader.num_items()
    }

    fn next_step(&mut self) -> Result<Vec<Batch<I>>, TrainError> {
        if let Some(batch) = self.next_batch()? {
            return Ok(vec![batch]);
        }
        self.next_epoch();
        // An empty loader gives no batch here either, and the loop says so.
        Ok(self.next_batch()?.into_iter().collect())
    }

    fn position(&self) -> LoaderPosition {
        self.position
    }

    fn seek(&mut self, position: LoaderPosition) -> Result<(), TrainError> {
        while self.position.epoch < position.epoch {
            self.next_epoch();
        }
        while self.position.batches < position.batches {
            if self.next_batch()?.is_none() {
                break;
            }
        }
        if self.position == position {
            return Ok(());
        }
        let (wanted, found) = (self.position, position);
        Err(TrainError::other(format!(
            "the data loader stands at {wanted:?} and cannot go to {found:?}"
        )))
    }
}
