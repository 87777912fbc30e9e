//! Which mutants a source file has: the operators, over its syntax tree.
//!
//! A mutant is two texts, one put before a piece of the source and one after it, so that the rest of the
//! file stays as it is, and so that mutants nest. Whether it has the right type is not known here: the
//! compiler says.

#![allow(clippy::wildcard_enum_match_arm, reason = "a grammar's other forms have no mutants")]

use proc_macro2::Span;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{BinOp, Block, Expr, ReturnType, Stmt};

use super::mutant::{Mutant, SWITCH};

/// Methods whose closure answers yes or no.
const ASKING: &[&str] = &[
    "filter",
    "any",
    "all",
    "find",
    "position",
    "rposition",
    "take_while",
    "skip_while",
    "retain",
    "is_some_and",
    "is_none_or",
    "is_ok_and",
    "partition_point",
];

/// Methods and what stands in their place.
const METHODS: &[(&str, &str)] = &[
    ("max", "min"),
    ("min", "max"),
    ("any", "all"),
    ("all", "any"),
    ("first", "last"),
    ("last", "first"),
    ("is_some", "is_none"),
    ("is_none", "is_some"),
    ("is_ok", "is_err"),
    ("is_err", "is_ok"),
    ("saturating_add", "saturating_sub"),
    ("saturating_sub", "saturating_add"),
    ("wrapping_add", "wrapping_sub"),
    ("wrapping_sub", "wrapping_add"),
    ("checked_add", "checked_sub"),
    ("checked_sub", "checked_add"),
];

/// Literals up to this one are made smaller too.
const SMALL: u64 = 64;

/// What a condition may be made to be: a loop's is not made true, for it would not end.
#[derive(Clone, Copy, PartialEq)]
enum May {
    Both,
    False,
}

/// Finds the mutants of a file; fails where it is no Rust.
pub(super) fn mutants(path: &str, text: &str) -> syn::Result<Vec<Mutant>> {
    let file = syn::parse_file(text)?;
    let mut finder =
        Finder { path, text, owner: Vec::new(), function: Vec::new(), found: Vec::new() };
    finder.visit_file(&file);
    Ok(finder.found)
}

struct Finder<'t> {
    path: &'t str,
    text: &'t str,
    /// The types whose methods are read.
    owner: Vec<String>,
    /// The functions that are read, each with where it begins and ends.
    function: Vec<(String, std::ops::Range<usize>)>,
    found: Vec<Mutant>,
}

impl Finder<'_> {
    fn of(&self, span: Span) -> &str {
        self.text.get(span.byte_range()).unwrap_or_default()
    }

    /// Bugs that the lab switches on are none of the program's decisions.
    fn is_seeded(&self, span: Span) -> bool {
        let text = self.of(span);
        text.contains("seeded::") || text.contains("Bug::")
    }

    fn add(&mut self, operator: &'static str, span: Span, [before, after]: [&str; 2], now: &str) {
        let Some((function, whole)) = self.function.first() else { return };
        if self.is_seeded(span) {
            return;
        }
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        self.found.push(Mutant {
            path: self.path.to_owned(),
            line: span.start().line,
            function: function.clone(),
            whole: whole.clone(),
            operator,
            was: words(self.of(span)),
            now: words(now),
            at: span.byte_range(),
            before: before.to_owned(),
            after: after.to_owned(),
        });
    }

    /// The piece, or `now` in its place.
    fn instead(&mut self, operator: &'static str, span: Span, now: &str) {
        let before = format!("(if {SWITCH} {{ {now} }} else {{ ");
        self.add(operator, span, [&before, " })"], now);
    }

    fn left_out(&mut self, operator: &'static str, span: Span) {
        self.add(operator, span, [&format!("if !{SWITCH} {{ "), " }"], "");
    }

    fn truth(&mut self, operator: &'static str, span: Span, value: bool) {
        let before = if value { format!("({SWITCH} || (") } else { format!("(!{SWITCH} && (") };
        self.add(operator, span, [&before, "))"], if value { "true" } else { "false" });
    }

    /// What is asked by `if`, `while`, a guard, a closure.
    fn condition(&mut self, asked: &Expr, may: May) {
        if has_let(asked) {
            self.add("if-let", asked.span(), [&format!("!{SWITCH} && "), ""], "false");
            return self.parts(asked);
        }
        let both = matches!(asked, Expr::Binary(at) if is_and(at.op) || is_or(at.op));
        let or = matches!(asked, Expr::Binary(at) if is_or(at.op));
        if may == May::Both && (or || !both) {
            self.truth("condition", asked.span(), true);
        }
        if !or {
            self.truth("condition", asked.span(), false);
        }
        self.parts(asked);
    }

    /// The operands of `&&` and `||`, each of which is dropped.
    fn parts(&mut self, asked: &Expr) {
        match asked {
            Expr::Binary(at) if is_and(at.op) || is_or(at.op) => {
                let now = if is_and(at.op) { "||" } else { "&&" };
                if !has_let(asked) {
                    self.swap_operator("and-or", at, now);
                }
                for side in [&*at.left, &*at.right] {
                    let same = matches!(side, Expr::Binary(below) if below.op == at.op);
                    if !same && !has_let(side) {
                        self.truth("operand", side.span(), is_and(at.op));
                    }
                    self.parts(side);
                }
            }
            Expr::Paren(at) => self.parts(&at.expr),
            Expr::Let(at) => self.visit_expr(&at.expr),
            _ if self.is_seeded(asked.span()) => {}
            // Its negation is among what was made of it.
            Expr::Binary(at) if matches!(at.op, BinOp::Eq(_) | BinOp::Ne(_)) => {
                self.visit_expr(&at.left);
                self.visit_expr(&at.right);
            }
            Expr::Unary(at) => self.visit_expr(&at.expr),
            Expr::MethodCall(at) if at.method.to_string().starts_with("is_") => {
                visit::visit_expr_method_call(self, at);
            }
            _ => self.visit_expr(asked),
        }
    }

    fn swap_operator(&mut self, operator: &'static str, at: &syn::ExprBinary, now: &str) {
        let [left, right] = [&at.left, &at.right].map(|side| self.of(side.span()));
        let now = format!("{left} {now} {right}");
        self.instead(operator, at.span(), &now);
    }

    fn binary(&mut self, at: &syn::ExprBinary) {
        let (operator, now) = match at.op {
            BinOp::Lt(_) => ("border", "<="),
            BinOp::Le(_) => ("border", "<"),
            BinOp::Gt(_) => ("border", ">="),
            BinOp::Ge(_) => ("border", ">"),
            BinOp::Eq(_) => ("equal", "!="),
            BinOp::Ne(_) => ("equal", "=="),
            BinOp::Add(_) => ("sum", "-"),
            BinOp::Sub(_) => ("sum", "+"),
            BinOp::Mul(_) | BinOp::Rem(_) => ("product", "/"),
            BinOp::Div(_) => ("product", "*"),
            BinOp::BitAnd(_) => ("bits", "|"),
            BinOp::BitOr(_) => ("bits", "&"),
            BinOp::Shl(_) => ("bits", ">>"),
            BinOp::Shr(_) => ("bits", "<<"),
            _ => return visit::visit_expr_binary(self, at),
        };
        self.swap_operator(operator, at, now);
        visit::visit_expr_binary(self, at);
    }

    fn literal(&mut self, at: &syn::ExprLit) {
        match &at.lit {
            syn::Lit::Int(int) => {
                let Ok(value) = int.base10_parse::<u64>() else { return };
                let suffix = int.suffix();
                if let Some(more) = value.checked_add(1) {
                    self.instead("constant", at.span(), &format!("{more}{suffix}"));
                }
                if let Some(less) = value.checked_sub(1).filter(|_| value <= SMALL) {
                    self.instead("constant", at.span(), &format!("{less}{suffix}"));
                }
            }
            syn::Lit::Bool(bool) => {
                let now = if bool.value { "false" } else { "true" };
                self.instead("constant", at.span(), now);
            }
            _ => {}
        }
    }

    fn path(&mut self, at: &syn::ExprPath) {
        let Some(last) = at.path.segments.last() else { return };
        let name = last.ident.to_string();
        let upper = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
        if name.len() > 1 && name.chars().all(upper) {
            let now = format!("{} + 1", self.of(at.span()));
            self.instead("constant", at.span(), &now);
        }
    }

    fn method(&mut self, at: &syn::ExprMethodCall) {
        let name = at.method.to_string();
        if let Some((_, now)) = METHODS.iter().find(|(was, _)| *was == name) {
            let (whole, method) = (at.span().byte_range(), at.method.span().byte_range());
            let text = |range| self.text.get(range).unwrap_or_default();
            let (head, tail) = (text(whole.start..method.start), text(method.end..whole.end));
            self.instead("method", at.span(), &format!("{head}{now}{tail}"));
        }
        if name == "then" || name == "then_some" {
            self.condition(&at.receiver, May::Both);
            at.args.iter().for_each(|argument| self.visit_expr(argument));
            return;
        }
        if let (true, Some(Expr::Closure(closure))) =
            (ASKING.contains(&name.as_str()), at.args.first())
            && !matches!(*closure.body, Expr::Block(_))
        {
            self.visit_expr(&at.receiver);
            self.condition(&closure.body, May::Both);
            at.args.iter().skip(1).for_each(|argument| self.visit_expr(argument));
            return;
        }
        visit::visit_expr_method_call(self, at);
    }

    fn if_(&mut self, at: &syn::ExprIf) {
        self.condition(&at.cond, May::Both);
        // What a seeded bug does.
        if !self.of(at.cond.span()).trim_start().starts_with("seeded::") {
            self.block(&at.then_branch, at.else_branch.is_none());
        }
        if let Some((_, other)) = &at.else_branch {
            self.visit_expr(other);
        }
    }

    /// Statements; `unit` says that the value of the last is none.
    fn block(&mut self, block: &Block, unit: bool) {
        let count = block.stmts.len();
        for (number, statement) in block.stmts.iter().enumerate() {
            if let Stmt::Expr(does, end) = statement {
                let used = end.is_none() && !(unit && number + 1 == count);
                self.statement(does, statement.span(), used, count);
            }
            self.visit_stmt(statement);
        }
    }

    fn statement(&mut self, does: &Expr, span: Span, used: bool, count: usize) {
        match does {
            Expr::ForLoop(_) => self.left_out("loop", span),
            Expr::Call(_) | Expr::MethodCall(_) | Expr::Try(_) if !used => {
                self.left_out("call", span);
            }
            Expr::Assign(_) if !used => self.left_out("assignment", span),
            // Alone it is what its condition made false is.
            Expr::Return(_) | Expr::Break(_) | Expr::Continue(_) if count > 1 => {
                self.left_out("return", span);
            }
            Expr::Binary(at) if !used => {
                self.left_out("assignment", span);
                let now = match at.op {
                    BinOp::AddAssign(_) => "-=",
                    BinOp::SubAssign(_) => "+=",
                    BinOp::BitOrAssign(_) => "&=",
                    BinOp::BitAndAssign(_) => "|=",
                    _ => return,
                };
                let [left, right] = [&at.left, &at.right].map(|side| self.of(side.span()));
                let now = format!("{left} {now} {right}");
                let before = format!("if {SWITCH} {{ {now}; }} else {{ ");
                self.add("sum", span, [&before, " }"], &now);
            }
            _ => {}
        }
    }

    fn fn_(&mut self, name: &str, signature: &syn::Signature, block: &Block) {
        if signature.constness.is_some() {
            return;
        }
        let name = self.owner.iter().map(String::as_str).chain([name]).collect::<Vec<_>>();
        let whole = signature.span().byte_range().start..block.span().byte_range().end;
        self.function.push((name.join("::"), whole));
        let unit = matches!(signature.output, ReturnType::Default);
        let asked =
            matches!(&signature.output, ReturnType::Type(_, of) if self.of(of.span()) == "bool");
        match block.stmts.split_last() {
            Some((Stmt::Expr(last, None), before)) if asked => {
                let count = block.stmts.len();
                for statement in before {
                    if let Stmt::Expr(does, _) = statement {
                        self.statement(does, statement.span(), false, count);
                    }
                    self.visit_stmt(statement);
                }
                self.condition(last, May::Both);
            }
            _ => self.block(block, unit),
        }
        self.function.pop();
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        match item {
            syn::Item::Fn(at) if is_product(&at.attrs) => {
                self.fn_(&at.sig.ident.to_string(), &at.sig, &at.block);
            }
            syn::Item::Impl(at) if is_product(&at.attrs) && !is_shown(at) => {
                let owner = self.of(at.self_ty.span());
                self.owner.push(owner.split('<').next().unwrap_or_default().to_owned());
                visit::visit_item_impl(self, at);
                self.owner.pop();
            }
            syn::Item::Mod(at) if is_product(&at.attrs) => visit::visit_item_mod(self, at),
            syn::Item::Trait(at) if is_product(&at.attrs) => visit::visit_item_trait(self, at),
            _ => {}
        }
    }

    fn visit_impl_item(&mut self, item: &'ast syn::ImplItem) {
        if let syn::ImplItem::Fn(at) = item
            && is_product(&at.attrs)
        {
            self.fn_(&at.sig.ident.to_string(), &at.sig, &at.block);
        }
    }

    fn visit_trait_item(&mut self, item: &'ast syn::TraitItem) {
        if let syn::TraitItem::Fn(at) = item
            && let Some(block) = &at.default
        {
            self.fn_(&at.sig.ident.to_string(), &at.sig, block);
        }
    }

    fn visit_block(&mut self, block: &'ast Block) {
        self.block(block, false);
    }

    fn visit_expr(&mut self, at: &'ast Expr) {
        match at {
            Expr::Binary(both) if is_and(both.op) || is_or(both.op) => self.parts(at),
            Expr::Binary(at) => self.binary(at),
            Expr::Lit(at) => self.literal(at),
            Expr::Path(at) => self.path(at),
            Expr::MethodCall(at) => self.method(at),
            Expr::If(at) => self.if_(at),
            Expr::While(at) => {
                self.condition(&at.cond, May::False);
                self.block(&at.body, true);
            }
            Expr::ForLoop(at) => {
                self.visit_expr(&at.expr);
                self.block(&at.body, true);
            }
            Expr::Loop(at) => self.block(&at.body, true),
            Expr::Unary(not) if matches!(not.op, syn::UnOp::Not(_)) => {
                let now = self.of(not.expr.span()).to_owned();
                self.instead("not", not.span(), &now);
                visit::visit_expr(self, at);
            }
            Expr::Range(range) => {
                if let Some(end) = range.end.as_deref().filter(|end| !matches!(end, Expr::Lit(_))) {
                    let now = format!("({}) - 1", self.of(end.span()));
                    self.instead("range", end.span(), &now);
                }
                visit::visit_expr(self, at);
            }
            Expr::Repeat(at) => self.visit_expr(&at.expr),
            // A constant's value is the compiler's; what a macro is given may be anything.
            Expr::Const(_) | Expr::Macro(_) => {}
            _ => visit::visit_expr(self, at),
        }
    }

    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        if let Some((_, guard)) = &arm.guard {
            self.condition(guard, May::Both);
            if self.of(guard.span()).starts_with("seeded::") {
                return;
            }
        }
        self.visit_expr(&arm.body);
    }

    fn visit_pat(&mut self, _: &'ast syn::Pat) {}
    fn visit_type(&mut self, _: &'ast syn::Type) {}
    fn visit_generic_argument(&mut self, _: &'ast syn::GenericArgument) {}
    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {}
}

fn is_and(op: BinOp) -> bool {
    matches!(op, BinOp::And(_))
}

fn is_or(op: BinOp) -> bool {
    matches!(op, BinOp::Or(_))
}

fn has_let(asked: &Expr) -> bool {
    match asked {
        Expr::Let(_) => true,
        Expr::Binary(at) => is_and(at.op) && (has_let(&at.left) || has_let(&at.right)),
        _ => false,
    }
}

/// Whether it is compiled into the product: neither tests nor what a feature adds.
pub(super) fn is_product(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().all(|at| match &at.meta {
        syn::Meta::List(list) if list.path.is_ident("cfg") => {
            let asked = list.tokens.to_string();
            asked.starts_with("not") || !(asked.contains("test") || asked.contains("feature"))
        }
        meta => !meta.path().is_ident("test"),
    })
}

/// An implementation of what shows a value to people.
fn is_shown(at: &syn::ItemImpl) -> bool {
    let last = at.trait_.as_ref().and_then(|(_, path, _)| path.segments.last());
    last.is_some_and(|last| last.ident == "Debug" || last.ident == "Display")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes(body: &str) -> Vec<String> {
        let found = mutants("a.rs", &format!("fn f() {{ {body} }}")).unwrap();
        found.iter().map(|mutant| format!("{}: {}", mutant.operator, mutant.change())).collect()
    }

    #[test]
    fn a_condition_is_made_true_and_false_and_its_operands_are_dropped() {
        assert_eq!(
            changes("if a { b } else { c }"),
            ["condition: a => true", "condition: a => false"]
        );
        assert_eq!(
            changes("if a && b { c } else { d }"),
            [
                "condition: a && b => false",
                "and-or: a && b => a || b",
                "operand: a => true",
                "operand: b => true"
            ]
        );
        assert_eq!(changes("while a {}"), ["condition: a => false"], "true would not end");
        let chain = "if let Some(a) = b && c { d } else { e }";
        assert_eq!(changes(chain), ["if-let: let Some(a) = b && c => false", "operand: c => true"]);
        assert_eq!(
            changes("let a = b.filter(|c| c.d());"),
            ["condition: c.d() => true", "condition: c.d() => false"]
        );
    }

    #[test]
    fn borders_sums_constants_and_methods_are_changed() {
        assert_eq!(changes("let a = b < c;"), ["border: b < c => b <= c"]);
        assert_eq!(changes("let a = b == c;"), ["equal: b == c => b != c"]);
        assert_eq!(
            changes("let a = b + 7u8;"),
            ["sum: b + 7u8 => b - 7u8", "constant: 7u8 => 8u8", "constant: 7u8 => 6u8"]
        );
        assert_eq!(changes("let a = PAGE;"), ["constant: PAGE => PAGE + 1"]);
        assert_eq!(changes("let a = b.max(c);"), ["method: b.max(c) => b.min(c)"]);
        assert_eq!(changes("let a = true;"), ["constant: true => false"]);
    }

    #[test]
    fn what_is_done_for_its_effect_is_left_out() {
        assert_eq!(
            changes("a(); b = c; d += e; let f = g();"),
            [
                "call: without a();",
                "assignment: without b = c;",
                "assignment: without d += e;",
                "sum: d += e; => d -= e"
            ]
        );
        let returns = changes("if a { b(); return; }");
        assert!(returns.contains(&"return: without return;".to_owned()), "{returns:?}");
        assert_eq!(changes("for a in b {}"), ["loop: without for a in b {}"]);
    }

    #[test]
    fn tests_seeded_bugs_and_messages_have_no_mutants() {
        let none = [
            "#[cfg(test)] mod tests { fn f() { a(); } }",
            "impl Debug for A { fn fmt(&self) { a(); } }",
            "const A: u64 = 3; const fn f() -> u64 { 3 }",
            "fn f() { assert!(a < 3, \"{}\", 4); }",
            "fn f() { if seeded::is_on(Bug::A) { a(); } }",
            "fn f(a: [u8; 3]) { match b { 3 => c, _ => d } }",
        ];
        for text in none {
            let found = mutants("a.rs", text).unwrap();
            assert!(found.is_empty(), "{text}: {found:?}");
        }
    }
}
