//! Circles of imports between the files of a crate, and between its folders.
//!
//! A file imports another if it names something in it by a path: in a `use` declaration, or in an
//! expression or type. A path through a re-export leads to the file that defines the item. `mod`
//! declarations are not imports, and neither is code that only tests or proofs compile.
//!
//! A file and the folder of the same name are one room. Two rooms of a folder are a circle if files
//! of each import files of the other, even where no two files do so: then neither can be read, or
//! moved, without the other.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};

use crate::command::{Failure, Outcome, on};

/// A module's name, from the crate's root.
type Name = Vec<String>;

/// The names in one module.
#[derive(Default)]
struct Module {
    /// The index of its file.
    file: usize,
    /// Modules that it declares.
    children: BTreeSet<String>,
    /// Names that it passes on, with their paths.
    exports: BTreeMap<String, Name>,
    /// Modules all of whose names it passes on.
    globs: Vec<Name>,
    /// Paths that it mentions.
    paths: Vec<Name>,
}

/// A crate, as far as its modules go.
#[derive(Default)]
struct Crate {
    files: Vec<PathBuf>,
    modules: BTreeMap<Name, Module>,
}

/// The circles in the crate under `directory`: each a set of files, or of folders with others
/// beside them, that import each other, directly or through others.
pub fn circles(directory: &Path) -> Outcome<Vec<Vec<String>>> {
    let mut found = Vec::new();
    for root in ["src/lib.rs", "src/main.rs"] {
        let path = directory.join(root);
        if path.exists() {
            let mut read = Crate::default();
            read.add_file(&path, &Vec::new())?;
            found.extend(read.circles(directory));
        }
    }
    Ok(found)
}

impl Crate {
    fn add_file(&mut self, path: &Path, name: &Name) -> Outcome {
        let text = fs::read_to_string(path).map_err(on(path, "read"))?;
        let parsed = syn::parse_file(&text).map_err(|error| {
            let line = error.span().start().line;
            Failure::new(format!("{}:{line}: {error}", path.display()))
        })?;
        let file = self.files.len();
        self.files.push(path.to_owned());
        self.add_module(name, file, &parsed.items)
    }

    fn add_module(&mut self, name: &Name, file: usize, items: &[syn::Item]) -> Outcome {
        let mut reader = Reader {
            at: name.clone(),
            module: Module {
                file,
                ..Module::default()
            },
        };
        // The children first: a path may begin with one that is declared below.
        let modules: Vec<&syn::ItemMod> = items
            .iter()
            .filter_map(|item| match item {
                syn::Item::Mod(module) if is_read(&module.attrs) => Some(module),
                _ => None,
            })
            .collect();
        for module in &modules {
            reader.module.children.insert(module.ident.to_string());
        }
        for item in items {
            reader.visit_item(item);
        }
        self.modules.insert(name.clone(), reader.module);
        for module in modules {
            let child = joined(name, &[module.ident.to_string()]);
            match &module.content {
                Some((_, items)) => self.add_module(&child, file, items)?,
                None => {
                    let path = self.file_of(file, name, &module.ident.to_string());
                    self.add_file(&path, &child)?;
                }
            }
        }
        Ok(())
    }

    /// Where the module `child` of a module in this file is written.
    fn file_of(&self, file: usize, parent: &Name, child: &str) -> PathBuf {
        let path = &self.files[file];
        let directory = path.parent().unwrap_or(Path::new(""));
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        let own = match matches!(&*stem, "lib" | "main" | "mod") {
            true => directory.to_owned(),
            false => directory.join(&*stem),
        };
        // Inline modules are directories below that of their file.
        let root = self
            .modules
            .iter()
            .filter(|(_, module)| module.file == file)
            .map(|(name, _)| name.len())
            .min()
            .unwrap_or(0);
        let inside = parent[root..]
            .iter()
            .fold(own, |path, part| path.join(part));
        let flat = inside.join(format!("{child}.rs"));
        match flat.exists() {
            true => flat,
            false => inside.join(child).join("mod.rs"),
        }
    }

    /// The file that defines the item of this path, if the path stays in the crate.
    fn owner(&self, path: &[String], depth: usize) -> Option<usize> {
        let mut at = Name::new();
        let mut rest = path;
        while let Some((next, after)) = rest.split_first() {
            let module = self.modules.get(&at)?;
            if module.children.contains(next) {
                at.push(next.clone());
                rest = after;
                continue;
            }
            // A path through more re-exports than this is a circle of its own.
            if depth < 16 {
                if let Some(target) = module.exports.get(next) {
                    return self.owner(&joined(target, after), depth + 1);
                }
                let through = |glob: &Name| {
                    let owner = self.owner(&joined(glob, rest), depth + 1)?;
                    self.defines(glob, next).then_some(owner)
                };
                if let Some(owner) = module.globs.iter().find_map(through) {
                    return Some(owner);
                }
            }
            return Some(module.file);
        }
        self.modules.get(&at).map(|module| module.file)
    }

    /// Whether this module passes on or declares a module of this name. Items are not read: a name
    /// that comes through a glob is looked for in modules and re-exports only.
    fn defines(&self, module: &Name, name: &str) -> bool {
        self.modules.get(module).is_some_and(|module| {
            module.exports.contains_key(name) || module.children.contains(name)
        })
    }

    fn circles(&self, directory: &Path) -> Vec<Vec<String>> {
        let mut imports = vec![BTreeSet::new(); self.files.len()];
        for module in self.modules.values() {
            let owners = module.paths.iter().filter_map(|path| self.owner(path, 0));
            imports[module.file].extend(owners.filter(|owner| *owner != module.file));
        }
        let name = |file: &usize| {
            let path = &self.files[*file];
            path.strip_prefix(directory)
                .unwrap_or(path)
                .display()
                .to_string()
        };
        let of_files = strongly_connected(&imports);
        let of_files = of_files
            .iter()
            .map(|files| files.iter().map(name).collect());
        of_files.chain(self.circles_of_rooms(&imports)).collect()
    }

    /// The circles between rooms side by side, at least one of which is a folder.
    fn circles_of_rooms(&self, imports: &[BTreeSet<usize>]) -> Vec<Vec<String>> {
        let names: Vec<&Name> = (0..self.files.len())
            .map(|file| {
                let modules = self.modules.iter();
                let own = modules.filter(|(_, module)| module.file == file);
                let own = own.map(|(name, _)| name);
                own.min_by_key(|name| name.len())
                    .expect("a file is a module")
            })
            .collect();
        // For each folder, which of its rooms imports which.
        let mut folders: BTreeMap<&[String], BTreeSet<(&String, &String)>> = BTreeMap::new();
        for (file, imported) in imports.iter().enumerate() {
            for other in imported {
                let (from, to) = (names[file], names[*other]);
                let shared = from.iter().zip(to).take_while(|(a, b)| a == b).count();
                if let (Some(a), Some(b)) = (from.get(shared), to.get(shared)) {
                    folders.entry(&from[..shared]).or_default().insert((a, b));
                }
            }
        }
        let is_folder = |room: &Name| {
            names
                .iter()
                .any(|name| name.len() > room.len() && name.starts_with(room))
        };
        let mut found = Vec::new();
        for (folder, edges) in folders {
            let rooms: BTreeSet<&String> = edges.iter().flat_map(|(a, b)| [*a, *b]).collect();
            let rooms: Vec<&String> = rooms.into_iter().collect();
            let index = |room: &String| rooms.iter().position(|known| *known == room);
            let mut graph = vec![BTreeSet::new(); rooms.len()];
            for (a, b) in edges {
                graph[index(a).expect("a room")].extend(index(b));
            }
            for circle in strongly_connected(&graph) {
                let circle = circle
                    .iter()
                    .map(|&room| joined(folder, &[rooms[room].clone()]));
                let circle: Vec<Name> = circle.collect();
                if circle.iter().any(is_folder) {
                    found.push(
                        circle
                            .iter()
                            .map(|room| format!("src/{}", room.join("/")))
                            .collect(),
                    );
                }
            }
        }
        found
    }
}

/// Collects the names in one module.
struct Reader {
    at: Name,
    module: Module,
}

impl Reader {
    /// The path from the crate's root, if this one begins in the crate.
    fn absolute(&self, segments: &[String]) -> Option<Name> {
        let (first, rest) = segments.split_first()?;
        match first.as_str() {
            "crate" => Some(rest.to_vec()),
            "self" => self.absolute_or_here(&self.at, rest),
            "super" => {
                let (_, parent) = self.at.split_last()?;
                self.absolute_or_here(parent, rest)
            }
            child if self.module.children.contains(child) => Some(joined(&self.at, segments)),
            _ => None,
        }
    }

    /// `self` and `super` may be followed by more `super`.
    fn absolute_or_here(&self, from: &[String], rest: &[String]) -> Option<Name> {
        let ups = rest.iter().take_while(|part| *part == "super").count();
        let from = &from[..from.len().checked_sub(ups)?];
        Some(joined(from, &rest[ups..]))
    }

    fn mention(&mut self, segments: &[String]) {
        if let Some(path) = self.absolute(segments) {
            self.module.paths.push(path);
        }
    }

    fn read_use(&mut self, before: &[String], tree: &syn::UseTree, passed_on: bool) {
        match tree {
            syn::UseTree::Path(path) => {
                let before = joined(before, &[path.ident.to_string()]);
                self.read_use(&before, &path.tree, passed_on);
            }
            syn::UseTree::Group(group) => {
                for tree in &group.items {
                    self.read_use(before, tree, passed_on);
                }
            }
            syn::UseTree::Glob(_) => {
                if let (true, Some(path)) = (passed_on, self.absolute(before)) {
                    self.module.globs.push(path);
                }
                self.mention(before);
            }
            syn::UseTree::Name(name) => {
                let name = name.ident.to_string();
                self.read_name(before, &name, &name, passed_on);
            }
            syn::UseTree::Rename(rename) => {
                let (name, other) = (rename.ident.to_string(), rename.rename.to_string());
                self.read_name(before, &name, &other, passed_on);
            }
        }
    }

    fn read_name(&mut self, before: &[String], name: &str, known_as: &str, passed_on: bool) {
        let segments = match name {
            "self" => before.to_vec(),
            name => joined(before, &[name.to_owned()]),
        };
        let known_as = match known_as {
            "self" => before.last().map_or("self", String::as_str),
            name => name,
        };
        if let (true, Some(path)) = (passed_on, self.absolute(&segments)) {
            self.module.exports.insert(known_as.to_owned(), path);
        }
        self.mention(&segments);
    }

    /// Paths in the arguments of a macro, which are not parsed.
    fn read_tokens(&mut self, tokens: TokenStream) {
        let mut segments: Vec<String> = Vec::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                TokenTree::Ident(ident) => {
                    if colons != 2 {
                        self.mention_path(&segments);
                        segments.clear();
                    }
                    segments.push(ident.to_string());
                    colons = 0;
                }
                other => {
                    self.mention_path(&segments);
                    segments.clear();
                    colons = 0;
                    if let TokenTree::Group(group) = other {
                        self.read_tokens(group.stream());
                    }
                }
            }
        }
        self.mention_path(&segments);
    }

    /// A path of more than one name. A single one was imported, or is at home here, or is the
    /// `crate` of a visibility.
    fn mention_path(&mut self, segments: &[String]) {
        if segments.len() > 1 {
            self.mention(segments);
        }
    }
}

impl<'ast> Visit<'ast> for Reader {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if !only_in_tests(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    /// Modules are read on their own.
    fn visit_item_mod(&mut self, _: &'ast syn::ItemMod) {}

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        let passed_on = !matches!(item.vis, syn::Visibility::Inherited);
        self.read_use(&[], &item.tree, passed_on);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments: Vec<String> = path
            .segments
            .iter()
            .map(|segment| segment.ident.to_string())
            .collect();
        self.mention_path(&segments);
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, invoked: &'ast syn::Macro) {
        visit::visit_macro(self, invoked);
        self.read_tokens(invoked.tokens.clone());
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        if !only_in_tests(&function.attrs) {
            visit::visit_impl_item_fn(self, function);
        }
    }
}

fn joined(before: &[String], after: &[String]) -> Name {
    [before, after].concat()
}

/// Whether a module is product code of this crate. The proofs' lists lie elsewhere, by `#[path]`.
fn is_read(attributes: &[syn::Attribute]) -> bool {
    let is_elsewhere = |attribute: &syn::Attribute| attribute.path().is_ident("path");
    !only_in_tests(attributes) && !attributes.iter().any(is_elsewhere)
}

/// Whether `#[cfg(test)]` or a condition with `test` in an `all` stands here.
fn only_in_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute
                .parse_args::<syn::Meta>()
                .is_ok_and(|condition| needs_test(&condition))
    })
}

fn needs_test(condition: &syn::Meta) -> bool {
    match condition {
        syn::Meta::Path(path) => path.is_ident("test"),
        syn::Meta::List(list) if list.path.is_ident("all") => list
            .parse_args_with(
                syn::punctuated::Punctuated::<syn::Meta, syn::Token![,]>::parse_terminated,
            )
            .is_ok_and(|all| all.iter().any(needs_test)),
        _ => false,
    }
}

fn attributes(item: &syn::Item) -> &[syn::Attribute] {
    match item {
        syn::Item::Const(item) => &item.attrs,
        syn::Item::Enum(item) => &item.attrs,
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::Impl(item) => &item.attrs,
        syn::Item::Macro(item) => &item.attrs,
        syn::Item::Mod(item) => &item.attrs,
        syn::Item::Static(item) => &item.attrs,
        syn::Item::Struct(item) => &item.attrs,
        syn::Item::Trait(item) => &item.attrs,
        syn::Item::Type(item) => &item.attrs,
        syn::Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// The sets of more than one node that are connected in both directions. A crate has some dozens of
/// files: the files that each one reaches are simply collected.
fn strongly_connected(edges: &[BTreeSet<usize>]) -> Vec<Vec<usize>> {
    let reached: Vec<BTreeSet<usize>> = (0..edges.len())
        .map(|start| {
            let mut seen = BTreeSet::new();
            let mut open: Vec<usize> = edges[start].iter().copied().collect();
            while let Some(node) = open.pop() {
                if seen.insert(node) {
                    open.extend(&edges[node]);
                }
            }
            seen
        })
        .collect();
    let mut found: Vec<Vec<usize>> = Vec::new();
    for node in 0..edges.len() {
        if found.iter().any(|circle| circle.contains(&node)) || !reached[node].contains(&node) {
            continue;
        }
        let both = |other: &usize| reached[node].contains(other) && reached[*other].contains(&node);
        found.push((0..edges.len()).filter(both).collect());
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::target_directory;

    /// A crate of these files, in a directory of its own.
    fn circles_of(name: &str, files: &[(&str, &str)]) -> Vec<Vec<String>> {
        let directory = target_directory().join("circles").join(name);
        let _ = fs::remove_dir_all(&directory);
        for (path, text) in files {
            let path = directory.join("src").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        circles(&directory).unwrap()
    }

    #[test]
    fn two_files_that_import_each_other_are_a_circle() {
        let files = [
            ("lib.rs", "mod a; mod b;"),
            ("a.rs", "use crate::b::B; pub struct A(B);"),
            ("b.rs", "pub struct B; impl B { fn a(_: &super::a::A) {} }"),
        ];
        assert_eq!(circles_of("two", &files), [["src/a.rs", "src/b.rs"]]);
    }

    #[test]
    fn a_path_is_followed_through_re_exports() {
        let files = [
            ("lib.rs", "mod a; mod b; mod c; pub use b::B;"),
            ("a.rs", "use crate::B; pub struct A(B);"),
            ("b.rs", "use crate::c::C; pub struct B(C);"),
            (
                "c.rs",
                "pub struct C; macro_rules! m { () => {} } fn f() { m!(crate::a::A) }",
            ),
        ];
        assert_eq!(
            circles_of("through", &files),
            [["src/a.rs", "src/b.rs", "src/c.rs"]]
        );
    }

    #[test]
    fn a_parent_and_its_child_may_be_a_circle() {
        let files = [
            ("lib.rs", "mod a;"),
            ("a.rs", "mod b; use b::B; pub struct A(B);"),
            ("a/b.rs", "use super::A; pub struct B; fn f(_: A) {}"),
        ];
        assert_eq!(circles_of("parent", &files), [["src/a.rs", "src/a/b.rs"]]);
    }

    #[test]
    fn two_folders_that_import_each_other_are_a_circle_though_no_two_files_are() {
        let files = [
            ("lib.rs", "mod a; mod b;"),
            ("a.rs", "mod x; mod y; pub use x::X;"),
            ("a/x.rs", "pub struct X;"),
            ("a/y.rs", "use crate::b::V; pub struct Y(V);"),
            ("b.rs", "mod u; mod v; pub use v::V;"),
            ("b/u.rs", "use crate::a::X; pub struct U(X);"),
            ("b/v.rs", "pub struct V;"),
        ];
        assert_eq!(circles_of("folders", &files), [["src/a", "src/b"]]);
        let mended = files.map(|(path, text)| match path {
            "b/u.rs" => (path, "pub struct U;"),
            _ => (path, text),
        });
        assert!(circles_of("folders", &mended).is_empty());
    }

    #[test]
    fn declarations_tests_and_other_crates_do_not_count() {
        let files = [
            ("lib.rs", "mod a; mod b; pub use a::A; use std::fmt;"),
            (
                "a.rs",
                "pub struct A; #[cfg(test)] mod tests { use crate::b::B; }",
            ),
            (
                "b.rs",
                "use crate::A; pub struct B(A); mod inner { use super::B; }",
            ),
        ];
        assert!(circles_of("none", &files).is_empty());
    }
}
