//! Exhaustive short sequences: each operation alone and each pair (the shapes seq-1 and seq-2 of ACE:
//! Mohan and others, OSDI 2018, section 5), sizes around every border, names of every length. Each
//! case has a number; what stands before the operations is not cut.

use novale_core::{Form, UpdatePolicy};

use super::drawn::filled;
use super::workloads::Case;
use crate::crash::{Caches, CrashOptions, Effort};
use crate::diff::CoreOptions;
use crate::source::numbers;
use crate::workload::{Step, parse_steps, sequence};

const MB: u64 = 1 << 20;

const FORMS: [Form; 2] = [Form::Single, Form::Two];

/// Everything that the model of the memory allows at an operation's points, as far as that can be.
pub(super) const ALL: Effort =
    Effort { subset_lines_max: 12, data_lines_max: 8, pairs: 40, random: 30, at_stores: true };

/// Every subset of up to 12 lines, and of the rest as far as the time for one of very many cases goes.
const SOME: Effort =
    Effort { subset_lines_max: 12, data_lines_max: 2, pairs: 8, random: 4, at_stores: true };

/// Each operation alone, in both forms, with caches lost and kept.
pub(super) fn single(number: u64) -> (Case, u64) {
    let ([operation, form, caches], count) = digits(number, [operations().len(), 2, 2]);
    let mut case = behind(sequence("pairs: before"), pick(operation), form);
    case.options.effort = ALL;
    case.options.caches = if caches == 0 { Caches::Lost } else { Caches::Kept };
    (case.options.used_one_in, case.options.nested_one_in) = (16, 40);
    (case, count)
}

/// All pairs of operations, in both forms.
pub(super) fn pairs(number: u64) -> (Case, u64) {
    let all = operations().len();
    let ([first, then, form], count) = digits(number, [all, all, 2]);
    let steps: Vec<Step> = pick(first).into_iter().chain(pick(then)).collect();
    let mut case = behind(sequence("pairs: before"), steps, form);
    case.options.many_threads = number % 3 == 2;
    (case, count)
}

/// The same on a pool that has a few pages left, or none.
pub(super) fn pairs_full(number: u64) -> (Case, u64) {
    let (case, count) = pairs(number);
    (case.with_past(&filled(u32::try_from(number % 12).unwrap_or(0))), count)
}

/// The same as another shape, on two slots, where views are dropped as soon as nobody has used them.
pub(super) fn dropped((mut case, count): (Case, u64)) -> (Case, u64) {
    case.options.core.slots = vec![2 * MB, 2 * MB];
    (case, count)
}

/// Offsets and lengths around a word, a line, half a page, a page, two pages.
const SIZES: [u64; 19] =
    [0, 1, 7, 8, 9, 63, 64, 65, 2047, 2048, 2049, 4032, 4095, 4096, 4097, 8191, 8192, 8193, 12_289];

/// Files to write to: empty, within a line, a page, a page and a bit, with a hole, reserved beyond
/// its end.
const FILES: [&str; 6] = [
    "",
    "write /f offset=0 len=3 fill=1",
    "write /f offset=0 len=4096 fill=1",
    "write /f offset=0 len=5000 fill=1",
    "write /f offset=9000 len=500 fill=1",
    "write /f offset=0 len=100 fill=1
     allocate /f extend=0 offset=0 len=12288",
];

/// How each is changed: written, cut or extended, reserved, appended to after a cut, written to
/// without a name, punched, zeroed, copied to.
const CHANGES: usize = 8;

/// Every offset and length, on every file, in every way.
pub(super) fn sizes(number: u64) -> (Case, u64) {
    let borders = SIZES.len();
    let ([offset, len, file, change, form], count) =
        digits(number, [borders, borders, FILES.len(), CHANGES, 2]);
    let (offset, len) = (at(&SIZES, offset), at(&SIZES, len));
    let file = at(&FILES, file);
    let setup = format!("create /f kind=file mode=6755 uid=1 gid=1 rdev=0 target=%\n{file}");
    let steps = match change {
        0 => format!("write /f offset={offset} len={len} fill=9"),
        1 => format!("set /f size={offset}\nset /f size={len}"),
        2 => format!("allocate /f extend={} offset={offset} len={len}", len % 2),
        5 => format!("punch /f offset={offset} len={len}"),
        6 => format!("zero /f offset={offset} len={len}"),
        7 => format!("copy /f /f from={} to={offset} len={len}", offset + len),
        3 => format!("set /f size={offset}\nappend /f len={len} fill=8"),
        _ => format!("hold /f slot=1\nunlink /f\nwrite @1 offset={offset} len={len} fill=7"),
    };
    (behind(&setup, steps_of(&steps), form), count)
}

/// Where files end that are appended to: in a unit of 8, a line, a page, at their borders.
const ENDS: [u64; 8] = [1, 8, 63, 100, 4032, 4090, 4096, 5000];

/// How much is appended.
const APPENDED: [u64; 7] = [1, 7, 8, 64, 100, 4096, 8192];

/// What comes after an append: all that raises the end over what one that was cut off has left, what
/// moves its page or copies it, and what has its page summed whole.
const BEHIND_APPENDS: [&str; 12] = [
    "set /f size=9000",
    "write /f offset=9000 len=10 fill=2",
    "write /f offset=9000 len=9000 fill=2",
    "append /f len=24 fill=2\nappend /f len=4096 fill=3",
    "append /f len=9000 fill=2",
    "allocate /f extend=1 offset=0 len=20000",
    "zero /f offset=10000 len=50",
    "copy /f /f from=0 to=10000 len=1",
    "insert /f offset=0 len=4096",
    "write /f offset=0 len=2 fill=2\nappend /f len=70 fill=3",
    "set /f size=1\nappend /f len=70 fill=3",
    "link /f /g\nset /g size=7000",
];

/// Every append to every file, and what comes after it; every other operation is cut off.
pub(super) fn appends(number: u64) -> (Case, u64) {
    let kinds = [ENDS.len(), APPENDED.len(), BEHIND_APPENDS.len(), 2];
    let ([end, len, then, form], count) = digits(number, kinds);
    let (end, len, then) = (at(&ENDS, end), at(&APPENDED, len), at(&BEHIND_APPENDS, then));
    let setup = format!(
        "create /f kind=file mode=644 uid=0 gid=0 rdev=0 target=%
        append /f len={end} fill=1"
    );
    let steps = format!("append /f len={len} fill=8\n{then}\nset /f size=20000");
    let mut case = behind(&setup, steps_of(&steps), form);
    (case.options.cut_off_one_in, case.options.used_one_in) = (2, 16);
    (case, count)
}

/// The methods whose overwrites are tried at every border; `auto` is what all others take.
const METHODS: [UpdatePolicy; 7] = [
    UpdatePolicy::Cow,
    UpdatePolicy::InPlace,
    UpdatePolicy::FineLog,
    UpdatePolicy::Paired,
    UpdatePolicy::Adl,
    UpdatePolicy::Zcl,
    UpdatePolicy::Lawn,
];

/// Where overwrites begin, and how long they are: around a unit of 8, a line, a page.
const OVERWRITTEN: [u64; 5] = [0, 7, 60, 4092, 5000];
const OVERWRITES: [u64; 6] = [1, 8, 64, 100, 4096, 8192];

/// What comes after an overwrite: all that moves, copies, cuts, sums or maps what it stored to.
const BEHIND_OVERWRITES: [&str; 13] = [
    "write /f offset=40 len=100 fill=2",
    "write /f offset=4000 len=200 fill=2\nwrite /f offset=4000 len=200 fill=3",
    "write /f offset=4096 len=64 fill=2\nwrite /f offset=64 len=64 fill=3\nwrite /f offset=0 len=200 fill=4",
    "append /f len=70 fill=2\nwrite /f offset=3 len=70 fill=3",
    "set /f size=4093\nset /f size=20000",
    "punch /f offset=4096 len=4096\nwrite /f offset=4090 len=100 fill=2",
    "zero /f offset=10 len=5000",
    "copy /f /f from=0 to=100 len=5000",
    "insert /f offset=0 len=4096\ncollapse /f offset=0 len=4096",
    "rename /f /g mode=replace\nwrite /g offset=0 len=9 fill=2",
    "hold /f slot=1\nunlink /f\nwrite @1 offset=0 len=70 fill=2\nremount",
    "map /f slot=1\nstore @1 offset=0 len=64 fill=2",
    "die\nwrite /f offset=1 len=64 fill=2",
];

/// Every overwrite by every method, and what comes after it; every other operation is cut off.
pub(super) fn overwrites(number: u64) -> (Case, u64) {
    let kinds = [OVERWRITTEN.len(), OVERWRITES.len(), BEHIND_OVERWRITES.len(), METHODS.len(), 2];
    let ([offset, len, then, method, form], count) = digits(number, kinds);
    let (offset, len) = (at(&OVERWRITTEN, offset), at(&OVERWRITES, len));
    let setup = "create /f kind=file mode=6755 uid=1 gid=1 rdev=0 target=%
        write /f offset=0 len=9000 fill=1
        append /f len=5000 fill=1";
    let then = at(&BEHIND_OVERWRITES, then);
    let steps = format!("write /f offset={offset} len={len} fill=9\n{then}");
    let mut case = behind(setup, steps_of(&steps), form);
    (case.options.cut_off_one_in, case.options.used_one_in) = (2, 16);
    case.options.core.update = at(&METHODS, method);
    (case, count)
}

/// The borders of a dentry's lines: 24 bytes of a name fit the first, 64 each further one.
const NAMES: [u64; 14] = [1, 2, 23, 24, 25, 87, 88, 89, 152, 153, 216, 217, 254, 255];

/// What is done with a name.
const NAME_STEPS: [&str; 9] = [
    "create /d/NAME kind=file mode=644 uid=0 gid=0 rdev=0 target=%",
    "create /d/NAME kind=directory mode=755 uid=0 gid=0 rdev=0 target=%\nrmdir /d/NAME",
    "create /d/NAME kind=symlink mode=777 uid=0 gid=0 rdev=0 target=NAME",
    "link /f /d/NAME\nunlink /f",
    "rename /f /d/NAME mode=replace",
    "link /f /d/NAME\nrename /d/NAME /e/NAME mode=noreplace\nunlink /e/NAME",
    "link /f /d/NAME\nrename /d/NAME /g mode=exchange",
    "rename /f /d/NAME mode=replace\nrename /g /d/NAME mode=replace",
    "rename /d /NAME mode=replace\nrename /e /NAME/NAME mode=replace",
];

/// Every length of a name, in every use.
pub(super) fn names(number: u64) -> (Case, u64) {
    let ([len, steps, form], count) = digits(number, [NAMES.len(), NAME_STEPS.len(), 2]);
    let steps = at(&NAME_STEPS, steps).replace("NAME", &format!("n*{}", at(&NAMES, len)));
    let setup = "create /d kind=directory mode=755 uid=0 gid=0 rdev=0 target=%
        create /e kind=directory mode=755 uid=0 gid=0 rdev=0 target=%
        create /f kind=file mode=644 uid=0 gid=0 rdev=0 target=%
        create /g kind=file mode=644 uid=0 gid=0 rdev=0 target=%";
    (behind(setup, steps_of(&steps), form), count)
}

/// What is done at a border of N bytes, or of as many pages, P.
const BORDER_STEPS: [&str; 8] = [
    "write /f offset=0 len=N fill=2",
    "append /f len=N fill=2\nappend /f len=N fill=3",
    "write /f offset=N len=100 fill=2\nset /f size=N",
    "copy /f /f from=0 to=N len=N",
    "zero /f offset=N len=N\npunch /f offset=100 len=N",
    "setxattr /f name=user.a mode=any len=N fill=2",
    "allocate /f extend=1 offset=0 len=P\npunch /f offset=4096 len=P\nset /f size=P",
    "write /f offset=P len=100 fill=2\ninsert /f offset=0 len=P\ncollapse /f offset=4096 len=P",
];

/// What is there N times, behind a number I, and what is done then.
const BORDER_COUNTS: [(&str, &str); 3] = [
    ("write /f offset=I0000 len=100 fill=4\n", "set /f size=9\nunlink /f"),
    (
        "create /I kind=file mode=644 uid=0 gid=0 rdev=0 target=%\n",
        "unlink /0\nrename /1 /0 mode=noreplace",
    ),
    ("setxattr /f name=user.I mode=any len=9 fill=4\n", "removexattr /f name=user.0\nunlink /f"),
];

/// Every constant of core and layout that may be a border, and its neighbours, as a length and as a count.
pub(super) fn borders(number: u64) -> (Case, u64) {
    let (numbers, ways) = (numbers(), BORDER_STEPS.len() + BORDER_COUNTS.len());
    let ([border, near, way, form], count) = digits(number, [numbers.len(), 3, ways, 2]);
    let border = at(numbers, border) + near - 1;
    let mut setup = "create /f kind=file mode=644 uid=0 gid=0 rdev=0 target=%
        write /f offset=0 len=9000 fill=1\n"
        .to_owned();
    let steps = if let Some(steps) = at_cloned(&BORDER_STEPS, way) {
        let pages = border.min(PAGES_MAX) * 4096;
        steps.replace('N', &border.to_string()).replace('P', &pages.to_string())
    } else {
        let (step, then) = at(&BORDER_COUNTS, way - BORDER_STEPS.len() as u64);
        let steps = (0..border.min(COUNT_MAX)).map(|one| step.replace('I', &one.to_string()));
        setup.extend(steps);
        then.to_owned()
    };
    (behind(&setup, steps_of(&steps), form), count)
}

/// Of larger numbers pages are not as many as that, nor is anything there so often.
const PAGES_MAX: u64 = 600;
const COUNT_MAX: u64 = 130;

/// All triples of operations on two descriptors.
pub(super) fn held(number: u64) -> (Case, u64) {
    let setup = "create /f kind=file mode=644 uid=0 gid=0 rdev=0 target=%
        write /f offset=0 len=4100 fill=1
        create /g kind=file mode=644 uid=0 gid=0 rdev=0 target=%
        hold /f slot=1
        hold /g slot=2";
    triples(number, sequence("held"), &[setup])
}

/// All triples of operations below directories with limits.
pub(super) fn trees(number: u64) -> (Case, u64) {
    let setup = "create /T kind=directory mode=755 uid=0 gid=0 rdev=0 target=%
        set /T project=5
        create /T/U kind=directory mode=755 uid=0 gid=0 rdev=0 target=%
        create /T/f kind=file mode=644 uid=0 gid=0 rdev=0 target=%
        write /T/f offset=0 len=9000 fill=1
        create /T/U/g kind=file mode=644 uid=0 gid=0 rdev=0 target=%
        limit /T inodes=5";
    let (mut case, count) = triples(number, sequence("trees"), &[setup]);
    case.options.core.lanes = u32::try_from(number % 4 + 1).unwrap_or(1);
    (case, count)
}

/// All triples of operations on a file that is mapped, or about to be.
pub(super) fn mapped(number: u64) -> (Case, u64) {
    let setup = |how| {
        format!(
            "create /f kind=file mode=644 uid=0 gid=0 rdev=0 target=%
            create /g kind=file mode=644 uid=0 gid=0 rdev=0 target=%
            write /g offset=0 len=12000 fill=2
            write /f offset=0 len=12000 fill=1
            {how} /f slot=1"
        )
    };
    triples(number, sequence("maps"), &[&setup("map"), &setup("hold")])
}

/// Three of these operations one after the other, behind one of these pasts, in both forms.
fn triples(number: u64, text: &str, setups: &[&str]) -> (Case, u64) {
    let all = steps_of(text);
    let kinds = [all.len(), all.len(), all.len(), 2, setups.len()];
    let ([first, then, last, form, setup], count) = digits(number, kinds);
    let steps = [first, then, last].into_iter().filter_map(|index| at_cloned(&all, index));
    (behind(at(setups, setup), steps.collect(), form), count)
}

fn behind(setup: &str, steps: Vec<Step>, form: u64) -> Case {
    let setup = steps_of(setup);
    let form = at(&FORMS, form);
    let options = CrashOptions {
        core: CoreOptions::new(vec![3 * MB], 1, form),
        from_step: setup.len(),
        effort: SOME,
        cut_off_one_in: 6,
        ..CrashOptions::default()
    };
    Case { steps: setup.into_iter().chain(steps).collect(), options }
}

/// Texts of this file: their tests see to it that they are steps.
fn steps_of(text: &str) -> Vec<Step> {
    parse_steps(text).unwrap_or_default()
}

fn operations() -> Vec<Step> {
    steps_of(sequence("pairs"))
}

fn pick(index: u64) -> Vec<Step> {
    at_cloned(&operations(), index).into_iter().collect()
}

fn at_cloned<T: Clone>(from: &[T], index: u64) -> Option<T> {
    from.get(usize::try_from(index).ok()?).cloned()
}

fn at<T: Copy + Default>(from: &[T], index: u64) -> T {
    at_cloned(from, index).unwrap_or_default()
}

/// A number's digits in these bases, the lowest first, and how many numbers there are.
fn digits<const N: usize>(mut number: u64, bases: [usize; N]) -> ([u64; N], u64) {
    let mut count = 1;
    let digits = bases.map(|base| {
        let base = base.max(1) as u64;
        let digit = number % base;
        (number, count) = (number / base, count * base);
        digit
    });
    (digits, count)
}

#[cfg(test)]
mod tests {
    use super::super::workloads::{How, WORKLOADS};
    use super::*;

    #[test]
    fn every_text_is_steps_and_every_number_a_case() {
        let texts = ["pairs: before", "pairs", "held", "maps", "trees"].map(sequence);
        assert!(texts.iter().all(|text| parse_steps(text).unwrap().len() > 10));
        for text in texts.into_iter().chain(FILES).chain(NAME_STEPS) {
            let text = text.replace("NAME", "n*9");
            assert_eq!(parse_steps(&text).err(), None, "{text}");
        }
        for workload in WORKLOADS {
            let How::Each(make) = workload.how else { continue };
            for number in (0..make(0).1).step_by(7) {
                let (case, _) = make(number);
                assert!(case.options.from_step < case.steps.len(), "{number}");
            }
        }
    }

    #[test]
    fn digits_count_through_all() {
        let all: std::collections::HashSet<_> = (0..24).map(|n| digits(n, [2, 3, 4]).0).collect();
        assert_eq!(digits(5, [2, 3, 4]).1, 24);
        assert_eq!(all.len(), 24);
    }
}
