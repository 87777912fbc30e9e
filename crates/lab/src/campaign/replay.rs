//! The file that a failure leaves: what was found as comments, a line of options, the steps.
//!
//! ```text
//! # step 1 (unlink /a): power cut at the fence of the operation at crates/core/src/op/commit.rs:97:8
//! options slots=4194304 lanes=1 form=auto from_step=0 ... seed=7
//! create /a kind=file mode=644 uid=0 gid=0 rdev=0 target=%
//! unlink /a
//! ```

use std::collections::BTreeMap;
use std::fmt::Write as _;

use novale_core::{Atime, Form, Mode, UpdatePolicy, mkfs_check};
use novale_layout::PAGE;

use super::workloads::Case;
use crate::crash::{Caches, CrashOptions, Effort};
use crate::diff::CoreOptions;
use crate::workload::{Step, parse_steps, print_steps};

/// The first word of the line of options.
const OPTIONS: &str = "options";

const FORMS: [(Form, &str); 3] =
    [(Form::Auto, "auto"), (Form::Single, "single"), (Form::Two, "two")];

/// The text of a case, with what was found in it as comments.
pub fn print_replay(case: &Case, found: &str) -> String {
    let mut text = String::new();
    for line in found.lines() {
        text.extend(["# ", line, "\n"]);
    }
    let CrashOptions { core, effort, .. } = &case.options;
    let slots: Vec<String> = core.slots.iter().map(ToString::to_string).collect();
    let form = FORMS.iter().find(|(form, _)| *form == core.form).map_or("auto", |(_, text)| text);
    let (update, mode) = (core.update.name(), core.mode.name());
    let numbers = [
        ("lanes", u64::from(core.lanes)),
        ("from_step", case.options.from_step as u64),
        ("subset_lines_max", effort.subset_lines_max as u64),
        ("data_lines_max", effort.data_lines_max as u64),
        ("pairs", effort.pairs as u64),
        ("random", effort.random as u64),
        ("at_stores", u64::from(effort.at_stores)),
        ("used_one_in", case.options.used_one_in),
        ("nested_one_in", case.options.nested_one_in),
        ("cut_off_one_in", u64::from(case.options.cut_off_one_in)),
        ("atime", case.options.atime as u64),
        ("by_units", u64::from(case.options.by_units)),
        ("many_threads", u64::from(case.options.many_threads)),
        ("clients", case.options.clients as u64),
        ("dies_one_in", u64::from(case.options.dies_one_in)),
        ("eadr", u64::from(case.options.caches == Caches::Kept)),
        ("eager_ms", u64::from(core.eager_ms)),
        ("seed", case.options.seed),
    ];
    write!(text, "{OPTIONS} slots={} form={form} update={update} mode={mode}", slots.join(","))
        .unwrap_or_default();
    for (key, number) in numbers {
        write!(text, " {key}={number}").unwrap_or_default();
    }
    text.push('\n');
    text.push_str(&print_steps(&case.steps));
    text
}

/// The case that a text describes.
///
/// # Errors
/// What is wrong with it, in words, with the line.
pub fn parse_replay(text: &str) -> Result<Case, String> {
    let is_options = |line: &str| line.split_whitespace().next() == Some(OPTIONS);
    let mut lines = (1..).zip(text.lines()).filter(|(_, line)| is_options(line));
    let (number, line) = lines.next().ok_or("it has no line of options: this is no replay file")?;
    if let Some((second, _)) = lines.next() {
        return Err(format!("line {second}: it has two lines of options"));
    }
    let options = parse_options(line).map_err(|why| format!("line {number}: {why}"))?;
    // The line of options becomes a comment, so that errors name the right line.
    let commented = |line: &str| if is_options(line) { "#".to_owned() } else { line.to_owned() };
    let steps: Vec<String> = text.lines().map(commented).collect();
    for (number, line) in (1..).zip(&steps) {
        let step = parse_steps(line).unwrap_or_default().pop();
        if let Some(len) = step.as_ref().map(bytes_of).filter(|len| *len > LEN_MAX) {
            return Err(format!("line {number}: len={len} is more than {LEN_MAX}"));
        }
    }
    let steps = parse_steps(&steps.join("\n"))?;
    if steps.is_empty() {
        return Err("it has no steps".to_owned());
    }
    if options.from_step >= steps.len() {
        let (from, count) = (options.from_step, steps.len());
        return Err(format!("line {number}: from_step={from}, but there are {count} steps"));
    }
    Ok(Case { steps, options })
}

/// Bytes that one step has in memory at most.
const LEN_MAX: u64 = 64 << 20;

/// Bytes of all slots together.
const POOL_BYTES_MAX: u64 = 1 << 30;

/// Images at a point are as many as a power of two of this.
const SUBSET_LINES_MAX: u64 = 16;

/// Lines, pairs and subsets that are chosen at a point.
const CHOSEN_MAX: u64 = 10_000;

/// Clients that are in flight together.
const CLIENTS_MAX: u64 = 6;

/// The bytes that a step has in memory.
fn bytes_of(step: &Step) -> u64 {
    let (mut len, mut count) = (0, 1);
    let _same = step.with_numbers(|verb, key, number| {
        match (verb, key) {
            ("allocate" | "punch" | "zero" | "zero_keep_size" | "collapse" | "insert", _) => {}
            (_, "len") => len = number,
            (_, "count") => count = number,
            _ => {}
        }
        number
    });
    len * count
}

fn parse_options(line: &str) -> Result<CrashOptions, String> {
    let mut values = Values::default();
    for word in line.split_whitespace().skip(1) {
        let (key, value) = word.split_once('=').ok_or_else(|| format!("{word} is no option"))?;
        if values.0.insert(key, value).is_some() {
            return Err(format!("{key}= is there twice"));
        }
    }
    let options = CrashOptions {
        core: values.pool()?,
        from_step: values.index("from_step", u64::MAX)?,
        effort: Effort {
            subset_lines_max: values.index("subset_lines_max", SUBSET_LINES_MAX)?,
            data_lines_max: values.index("data_lines_max", CHOSEN_MAX)?,
            pairs: values.index("pairs", CHOSEN_MAX)?,
            random: values.index("random", CHOSEN_MAX)?,
            at_stores: values.flag("at_stores")?,
        },
        atime: values.atime()?,
        caches: if values.flag("eadr")? { Caches::Kept } else { Caches::Lost },
        used_one_in: values.number("used_one_in", 0, u64::MAX)?,
        nested_one_in: values.number("nested_one_in", 0, u64::MAX)?,
        cut_off_one_in: values.number("cut_off_one_in", 0, u64::MAX)?,
        // Files from before have none, and none of the next two.
        by_units: values.0.contains_key("by_units") && values.flag("by_units")?,
        many_threads: values.flag("many_threads")?,
        clients: values.or("clients", 1, CLIENTS_MAX)?,
        dies_one_in: values.or("dies_one_in", 0, u64::MAX)?,
        seed: values.number("seed", 0, u64::MAX)?,
    };
    match values.0.keys().next() {
        Some(key) => Err(format!("{key}= is no option")),
        None => Ok(options),
    }
}

/// What the line of options says, by key; what has been read is gone.
#[derive(Default)]
struct Values<'l>(BTreeMap<&'l str, &'l str>);

impl<'l> Values<'l> {
    fn text(&mut self, key: &str) -> Result<&'l str, String> {
        self.0.remove(key).ok_or_else(|| format!("{key}= is missing"))
    }

    fn number<T: TryFrom<u64>>(&mut self, key: &str, min: u64, max: u64) -> Result<T, String> {
        parse_number(key, self.text(key)?, min, max)
    }

    /// As [`Self::number`], from 0 on; `or` where there is none.
    fn or<T: TryFrom<u64>>(&mut self, key: &str, or: T, max: u64) -> Result<T, String> {
        if self.0.contains_key(key) { self.number(key, 0, max) } else { Ok(or) }
    }

    fn index(&mut self, key: &str, max: u64) -> Result<usize, String> {
        self.number(key, 0, max)
    }

    fn flag(&mut self, key: &str) -> Result<bool, String> {
        Ok(self.number::<u8>(key, 0, 1)? == 1)
    }

    fn atime(&mut self) -> Result<Atime, String> {
        let number = self.or("atime", Atime::Noatime as u8, u64::MAX)?;
        let all = [Atime::Relatime, Atime::Noatime, Atime::Strict];
        let known = all.into_iter().find(|atime| *atime as u8 == number);
        known.ok_or_else(|| format!("atime={number} is no rule for access times"))
    }

    /// Slots, lanes and form, of which a pool can be made.
    fn pool(&mut self) -> Result<CoreOptions, String> {
        let slots = self.text("slots")?;
        let bytes = |text| parse_number("slots", text, PAGE, POOL_BYTES_MAX);
        let lens: Vec<u64> = slots.split(',').map(bytes).collect::<Result<_, String>>()?;
        if let Some(len) = lens.iter().find(|len| !len.is_multiple_of(PAGE)) {
            return Err(format!("slots={slots}: {len} is no multiple of {PAGE}"));
        }
        if lens.iter().sum::<u64>() > POOL_BYTES_MAX {
            return Err(format!("slots={slots}: more than {POOL_BYTES_MAX} bytes in all"));
        }
        let lanes = self.number("lanes", 0, u64::from(u32::MAX))?;
        mkfs_check(&lens, lanes).map_err(|why| format!("slots={slots} lanes={lanes}: {why}"))?;
        let form = self.text("form")?;
        let known = FORMS.iter().find(|(_, text)| *text == form);
        let (form, _) =
            known.ok_or_else(|| format!("form={form} is none of auto, single and two"))?;
        // Files of before there was a choice have none.
        let update = self.text("update").unwrap_or("auto");
        let update = UpdatePolicy::named(update)
            .ok_or_else(|| format!("update={update} is no method of writes"))?;
        let mode = self.text("mode").unwrap_or("strict");
        let mode = Mode::named(mode).ok_or_else(|| format!("mode={mode} is none of writes"))?;
        let eager_ms = self.or("eager_ms", 0, u64::from(u32::MAX))?;
        Ok(CoreOptions { update, mode, eager_ms, ..CoreOptions::new(lens, lanes, *form) })
    }
}

fn parse_number<T: TryFrom<u64>>(key: &str, text: &str, min: u64, max: u64) -> Result<T, String> {
    let number = text.parse().ok().filter(|number| (min..=max).contains(number));
    let number: Option<T> = number.and_then(|number| T::try_from(number).ok());
    number.ok_or_else(|| match max {
        u64::MAX => format!("{key}={text} is no number in range"),
        _ => format!("{key}={text} is no number from {min} to {max}"),
    })
}
