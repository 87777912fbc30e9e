//! The file that a failure leaves: what was found as comments, a line of options, the steps.
//!
//! ```text
//! # step 1 (unlink /a): power cut at the fence of the operation at crates/core/src/commit.rs:97:8
//! options slots=4194304 lanes=1 form=auto from_step=0 ... seed=7
//! create /a kind=file mode=644 uid=0 gid=0 rdev=0 target=%
//! unlink /a
//! ```

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::str::FromStr;

use novale_core::Form;

use super::workloads::Case;
use crate::crash::{Caches, CrashOptions, Effort};
use crate::diff::CoreOptions;
use crate::workload::{parse_steps, print_steps};

/// The first word of the line of options.
const OPTIONS: &str = "options";

const FORMS: [(Form, &str); 3] =
    [(Form::Auto, "auto"), (Form::Single, "single"), (Form::Two, "two")];

/// The text of a case, with what was found in it as comments.
#[must_use]
pub fn print_replay(case: &Case, found: &str) -> String {
    let mut text = String::new();
    for line in found.lines() {
        text.extend(["# ", line, "\n"]);
    }
    let CrashOptions { core, effort, .. } = &case.options;
    let slots: Vec<String> = core.slots.iter().map(ToString::to_string).collect();
    let form = FORMS.iter().find(|(form, _)| *form == core.form).map_or("auto", |(_, text)| text);
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
        ("many_threads", u64::from(case.options.many_threads)),
        ("eadr", u64::from(case.options.caches == Caches::Kept)),
        ("seed", case.options.seed),
    ];
    write!(text, "{OPTIONS} slots={} form={form}", slots.join(",")).unwrap_or_default();
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
/// What is wrong with it, in words.
pub fn parse_replay(text: &str) -> Result<Case, String> {
    let is_options = |line: &&str| line.split_whitespace().next() == Some(OPTIONS);
    let mut lines = text.lines().filter(is_options);
    let options = lines.next().ok_or("it has no line of options: this is no replay file")?;
    if lines.next().is_some() {
        return Err("it has two lines of options".to_owned());
    }
    let options = parse_options(options)?;
    // The line of options becomes a comment, so that errors name the right line.
    let commented = |line: &str| if is_options(&line) { "#".to_owned() } else { line.to_owned() };
    let steps: Vec<String> = text.lines().map(commented).collect();
    let steps = parse_steps(&steps.join("\n"))?;
    if steps.is_empty() {
        return Err("it has no steps".to_owned());
    }
    Ok(Case { steps, options })
}

fn parse_options(line: &str) -> Result<CrashOptions, String> {
    let mut values = BTreeMap::new();
    for word in line.split_whitespace().skip(1) {
        let (key, value) = word.split_once('=').ok_or_else(|| format!("{word} is no option"))?;
        values.insert(key, value);
    }
    let mut text = |key: &str| values.remove(key).ok_or_else(|| format!("{key}= is missing"));
    let slots: Result<Vec<u64>, String> =
        text("slots")?.split(',').map(|bytes| number("slots", bytes)).collect();
    let form = text("form")?;
    let form = FORMS.iter().find(|(_, text)| *text == form);
    let (form, _) = form.ok_or("form= is none of auto, single and two")?;
    let options = CrashOptions {
        core: CoreOptions { slots: slots?, lanes: number("lanes", text("lanes")?)?, form: *form },
        from_step: number("from_step", text("from_step")?)?,
        effort: Effort {
            subset_lines_max: number("subset_lines_max", text("subset_lines_max")?)?,
            data_lines_max: number("data_lines_max", text("data_lines_max")?)?,
            pairs: number("pairs", text("pairs")?)?,
            random: number("random", text("random")?)?,
            at_stores: number::<u8>("at_stores", text("at_stores")?)? != 0,
        },
        caches: match number("eadr", text("eadr")?)? {
            0_u8 => Caches::Lost,
            _ => Caches::Kept,
        },
        used_one_in: number("used_one_in", text("used_one_in")?)?,
        nested_one_in: number("nested_one_in", text("nested_one_in")?)?,
        cut_off_one_in: number("cut_off_one_in", text("cut_off_one_in")?)?,
        many_threads: number::<u8>("many_threads", text("many_threads")?)? != 0,
        seed: number("seed", text("seed")?)?,
    };
    match values.keys().next() {
        Some(key) => Err(format!("{key}= is no option")),
        None => Ok(options),
    }
}

fn number<T: FromStr>(key: &str, text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{key}={text} is no number in range"))
}
