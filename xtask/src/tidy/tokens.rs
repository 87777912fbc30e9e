//! Rust text as flat tokens and measured functions.
//!
//! Tokens rather than text, so that comments and strings can't match a rule, and rather than a full
//! syntax tree, so that the bodies of macros are seen too.

use std::collections::BTreeSet;

use proc_macro2::{Delimiter, Group, Ident, Punct, Spacing, Span, TokenStream, TokenTree};

/// A Rust token.
#[derive(Debug)]
pub(crate) struct Token {
    /// Its spelling; `::` is one token, a delimiter is one character.
    pub(crate) text: String,
    /// Counted from 1.
    pub(crate) line: usize,
    /// Compiled for tests only.
    pub(crate) is_test: bool,
}

/// A function with a body.
#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) name: String,
    /// Line of its `fn`.
    pub(crate) line: usize,
    /// Lines from `fn` to the closing brace that hold more than comments and blanks.
    pub(crate) code_lines: usize,
}

/// What a file's text holds.
#[derive(Debug, Default)]
pub(crate) struct Tokens {
    pub(crate) list: Vec<Token>,
    pub(crate) functions: Vec<Function>,
}

/// Where the reader stands between two braces.
struct Scope {
    /// All of it is compiled for tests only.
    all_test: bool,
    /// So is the item that is being read.
    item_test: bool,
    /// The function whose body comes next, and the index of its first token.
    unfinished: Option<(Function, usize)>,
}

type Rest = std::iter::Peekable<proc_macro2::token_stream::IntoIter>;

impl Tokens {
    /// Splits `text`; `all_test` says that its place makes it a test. Fails with the reason where
    /// the text is no Rust.
    pub(crate) fn read(text: &str, all_test: bool) -> Result<Self, String> {
        let stream: TokenStream = text.parse().map_err(|e: proc_macro2::LexError| e.to_string())?;
        let mut tokens = Self::default();
        tokens.read_stream(stream, all_test);
        Ok(tokens)
    }

    fn read_stream(&mut self, stream: TokenStream, all_test: bool) {
        let mut scope = Scope { all_test, item_test: all_test, unfinished: None };
        let mut rest = stream.into_iter().peekable();
        while let Some(tree) = rest.next() {
            match tree {
                TokenTree::Punct(punct) => self.read_punct(&punct, &mut rest, &mut scope),
                TokenTree::Ident(ident) => self.read_ident(&ident, &mut rest, &mut scope),
                TokenTree::Group(group) => self.read_group(&group, &mut scope),
                TokenTree::Literal(literal) => {
                    self.push(&literal.to_string(), literal.span(), &scope);
                }
            }
        }
    }

    fn read_punct(&mut self, punct: &Punct, rest: &mut Rest, scope: &mut Scope) {
        match punct.as_char() {
            '#' => read_attribute(rest, scope),
            ':' if punct.spacing() == Spacing::Joint && next_is_colon(rest) => {
                rest.next();
                self.push("::", punct.span(), scope);
            }
            other => {
                self.push(&other.to_string(), punct.span(), scope);
                if other == ';' {
                    scope.item_test = scope.all_test;
                    scope.unfinished = None;
                }
            }
        }
    }

    fn read_ident(&mut self, ident: &Ident, rest: &mut Rest, scope: &mut Scope) {
        let text = ident.to_string();
        if text == "fn"
            && let Some(TokenTree::Ident(name)) = rest.peek()
        {
            let (name, line) = (name.to_string(), ident.span().start().line);
            scope.unfinished = Some((Function { name, line, code_lines: 0 }, self.list.len()));
        }
        self.push(&text, ident.span(), scope);
    }

    fn read_group(&mut self, group: &Group, scope: &mut Scope) {
        let (before, after) = match group.delimiter() {
            Delimiter::Brace => ("{", "}"),
            Delimiter::Bracket => ("[", "]"),
            Delimiter::Parenthesis => ("(", ")"),
            Delimiter::None => ("", ""),
        };
        self.push(before, group.span_open(), scope);
        self.read_stream(group.stream(), scope.item_test);
        self.push(after, group.span_close(), scope);
        if group.delimiter() == Delimiter::Brace {
            scope.item_test = scope.all_test;
            self.finish(scope.unfinished.take());
        }
    }

    /// Measures a function whose last token has just been read.
    fn finish(&mut self, function: Option<(Function, usize)>) {
        let Some((mut function, first)) = function else {
            return;
        };
        let lines = self.list.iter().skip(first).map(|token| token.line);
        function.code_lines = lines.collect::<BTreeSet<usize>>().len();
        self.functions.push(function);
    }

    fn push(&mut self, text: &str, span: Span, scope: &Scope) {
        let (text, line) = (text.to_owned(), span.start().line);
        self.list.push(Token { text, line, is_test: scope.item_test });
    }
}

/// Takes note of `#[cfg(test)]` and `#[test]`, and drops doc comments, which are no code.
fn read_attribute(rest: &mut Rest, scope: &mut Scope) {
    let Some(TokenTree::Group(group)) = rest.peek() else {
        return;
    };
    let attribute = group.stream().to_string();
    scope.item_test |= is_test_attribute(&attribute);
    if attribute.starts_with("doc") {
        rest.next();
    }
}

fn next_is_colon(rest: &mut Rest) -> bool {
    matches!(rest.peek(), Some(TokenTree::Punct(next)) if next.as_char() == ':')
}

/// Whether an attribute's content, such as `cfg (test)`, restricts its item to tests.
fn is_test_attribute(attribute: &str) -> bool {
    let words = attribute.split(|c: char| !c.is_alphanumeric() && c != '_');
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    let gate = words.first() == Some(&"cfg") && words.contains(&"test") && !words.contains(&"not");
    gate || words == ["test"]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Tokens {
        Tokens::read(text, false).unwrap()
    }

    #[test]
    fn comments_and_strings_are_no_tokens() {
        let tokens = read("//! unsafe\n/// unsafe\nfn a() { let s = \"unsafe\"; /* unsafe */ }\n");
        assert!(tokens.list.iter().all(|token| token.text != "unsafe"), "{tokens:?}");
    }

    #[test]
    fn test_items_are_told_from_product_items() {
        let text = "fn a() { one }\n#[cfg(test)]\nmod tests { fn b() { two } }\n\
             #[cfg(not(test))]\nfn c() { three }\n#[test]\nfn d() { four }\nfn e() { five }\n";
        let numbers = ["one", "two", "three", "four", "five"];
        let tokens = read(text);
        let tests = tokens.list.iter().filter(|token| token.is_test);
        let found: Vec<&str> =
            tests.map(|token| token.text.as_str()).filter(|text| numbers.contains(text)).collect();
        assert_eq!(found, ["two", "four"]);
        let whole = Tokens::read("fn a() { one }", true).unwrap();
        assert!(whole.list.iter().all(|token| token.is_test));
    }

    #[test]
    fn functions_are_measured_without_comments_and_blanks() {
        let tokens = read(
            "trait T { fn none(&self); const C: U = { 3 }; fn short(&self) { 1; } }\n\n\
             fn long<T>(x: T)\nwhere\n    T: Copy,\n{\n    // why\n\n    if x {\n        2;\n    }\n}\n",
        );
        let lengths: Vec<(&str, usize, usize)> =
            tokens.functions.iter().map(|f| (f.name.as_str(), f.line, f.code_lines)).collect();
        // `none` has no body, and must not take that of its neighbour.
        assert_eq!(lengths, [("short", 1, 1), ("long", 3, 8)]);
    }

    #[test]
    fn text_that_is_no_rust_says_so() {
        assert!(Tokens::read("fn a() { ", false).is_err());
    }
}
