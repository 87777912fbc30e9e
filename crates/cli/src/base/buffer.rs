//! The rules of the write buffer, as arguments and as words of `-o`.

#![allow(clippy::doc_markdown, reason = "these docs are help texts, read on a terminal")]

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use novale_policy::BufferRules;

/// What is said of the write buffer beside its size; all of it matters in mode buffered alone.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct BufferArgs {
    /// In mode buffered: how often, in seconds, the daemon looks for what is old [default: 5].
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub(crate) write_back: Option<u32>,
    /// In mode buffered: what has waited for longer, in seconds, is written back [default: 30].
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=86400))]
    pub(crate) age: Option<u32>,
    /// In mode buffered: with fewer free blocks in a hundred, writing back begins at once [default: 5].
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(1..=99))]
    pub(crate) low: Option<u32>,
    /// In mode buffered: and goes on until so many are free [default: 20].
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) high: Option<u32>,
    /// In mode buffered: for how many seconds after its last fsync the writes of a file may go past the
    /// buffer, where that takes less time; 0: all are buffered [default: 5].
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(0..=3600))]
    pub(crate) eager: Option<u32>,
    /// In mode buffered, for comparisons: what the buffer fetches and writes back [default: lines].
    #[arg(long, value_enum, value_name = "UNIT")]
    pub(crate) unit: Option<Unit>,
}

/// What is fetched into the buffer and written back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Unit {
    /// The cache lines that were written (HiNFS).
    Lines,
    /// Whole pages, as a page cache does.
    Pages,
}

/// The words: names, and the least and the most that they may say.
const NUMBERS: [(&str, u32, u32); 5] = [
    ("write_back", 1, 3600),
    ("age", 1, 86_400),
    ("low", 1, 99),
    ("high", 1, 100),
    ("eager", 0, 3600),
];
const UNIT: &str = "unit";

impl BufferArgs {
    fn numbers(&mut self) -> [&mut Option<u32>; NUMBERS.len()] {
        let Self { write_back, age, low, high, eager, unit: _ } = self;
        [write_back, age, low, high, eager]
    }

    /// Takes a word of `-o`; says whether it is one of these.
    pub(crate) fn take(&mut self, key: &str, value: &str) -> Result<bool, String> {
        if key == UNIT {
            self.unit = Some(Unit::from_str(value, false).map_err(|_| "it is lines or pages")?);
            return Ok(true);
        }
        for ((name, least, most), number) in NUMBERS.into_iter().zip(self.numbers()) {
            if name == key {
                let said: Option<u32> = value.parse().ok();
                let fits = said.filter(|said| (least..=most).contains(said));
                *number = Some(fits.ok_or(format!("it is a number from {least} to {most}"))?);
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Takes from others what is not said here.
    pub(crate) fn complete(&mut self, mut others: Self) {
        for (number, other) in self.numbers().into_iter().zip(others.numbers()) {
            *number = number.or(*other);
        }
        self.unit = self.unit.or(others.unit);
    }

    /// The words that say all of it.
    pub(crate) fn words(&self) -> Vec<String> {
        let mut this = self.clone();
        let numbers = NUMBERS.into_iter().zip(this.numbers());
        let said = |((name, ..), number): ((&str, u32, u32), &mut Option<u32>)| {
            number.map(|number| format!("{name}={number}"))
        };
        let unit = self.unit.and_then(|unit| unit.to_possible_value());
        let unit = unit.map(|unit| format!("{UNIT}={}", unit.get_name()));
        numbers.filter_map(said).chain(unit).collect()
    }

    /// The rules that it says, the paper's where it says nothing.
    pub(crate) fn rules(&self) -> Result<BufferRules> {
        let own = BufferRules::default();
        let percent =
            |said: Option<u32>, own| said.and_then(|said| said.try_into().ok()).unwrap_or(own);
        let ms = |said: Option<u32>, own| said.map_or(own, |seconds| seconds * 1000);
        let rules = BufferRules {
            low_percent: percent(self.low, own.low_percent),
            high_percent: percent(self.high, own.high_percent),
            interval_ms: ms(self.write_back, own.interval_ms),
            age_ms: ms(self.age, own.age_ms),
            eager_ms: ms(self.eager, own.eager_ms),
            has_model: self.eager != Some(0),
            by_lines: self.unit != Some(Unit::Pages),
        };
        if rules.high_percent <= rules.low_percent {
            bail!(
                "writing back begins with less than {} % of the buffer free and ends at {} %: give a greater \
                 high, or a smaller low",
                rules.low_percent,
                rules.high_percent
            );
        }
        Ok(rules)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(words: &[&str]) -> BufferArgs {
        let mut args = BufferArgs::default();
        for (key, value) in words.iter().filter_map(|word| word.split_once('=')) {
            assert!(args.take(key, value).unwrap());
        }
        args
    }

    #[test]
    fn words_say_what_arguments_say() {
        let words = ["write_back=2", "age=9", "low=10", "high=60", "eager=0", "unit=pages"];
        let args = of(&words);
        assert_eq!(args.words(), words);
        let expected = BufferRules {
            low_percent: 10,
            high_percent: 60,
            interval_ms: 2_000,
            age_ms: 9_000,
            eager_ms: 0,
            has_model: false,
            by_lines: false,
        };
        assert_eq!(args.rules().unwrap(), expected);
        let mut given = of(&["age=7"]);
        given.complete(args);
        assert_eq!((given.age, given.low), (Some(7), Some(10)));
        assert_eq!(BufferArgs::default().rules().unwrap(), BufferRules::default());
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        assert!(BufferArgs::default().take("low", "100").unwrap_err().contains("1 to 99"));
        assert!(BufferArgs::default().take("age", "soon").is_err());
        assert!(BufferArgs::default().take("unit", "bytes").is_err());
        assert!(!BufferArgs::default().take("colour", "1").unwrap());
        assert!(of(&["low=30"]).rules().is_err());
    }
}
