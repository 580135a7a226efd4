//! The resident memory of one run.

use std::fs;

/// The system's high-water mark of this process, reset at the start of a run.
///
/// What the process holds at that moment is part of the mark: the data, and what its allocator kept of
/// earlier runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeakMemory {
    is_own: bool,
}

impl PeakMemory {
    /// Sets the mark back to what is resident now (Linux: `5` into `/proc/self/clear_refs`).
    pub fn start() -> Self {
        Self { is_own: fs::write("/proc/self/clear_refs", "5").is_ok() }
    }

    pub const fn unknown() -> Self {
        Self { is_own: false }
    }

    /// Largest resident set since the start in bytes; `None` where the system does not set its mark
    /// back, for then the mark is that of the whole process.
    pub fn bytes(self) -> Option<u64> {
        if !self.is_own {
            return None;
        }
        let status = fs::read_to_string("/proc/self/status").ok()?;
        let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
        let kilobytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
        Some(kilobytes * 1024)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_run_does_not_inherit_the_mark_of_an_earlier_one() {
        const LARGE: usize = 512 << 20;
        let first = PeakMemory::start();
        let block = vec![1_u8; LARGE];
        assert_eq!(
            block.iter().step_by(4096).map(|&b| usize::from(b)).sum::<usize>(),
            LARGE / 4096
        );
        let earlier = first.bytes();
        drop(block);
        let later = PeakMemory::start().bytes();
        assert_eq!(earlier.is_some(), later.is_some());
        if let (Some(earlier), Some(later)) = (earlier, later) {
            assert!(earlier >= LARGE as u64 && later < earlier, "{earlier} {later}");
        }
        assert_eq!(PeakMemory::unknown().bytes(), None);
    }
}
