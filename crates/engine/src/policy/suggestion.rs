//! "Did you mean": the known name nearest to a misspelt one.

/// Most characters of a misspelt name that are compared with known names.
const MAX_COMPARED_CHARS: usize = 100;

/// Known name closest to `written`, if a name is close enough. Case, dashes, underscores, blanks and the order of words
/// are ignored: for example, `hierarchyEnable` matches `enableHierarchy`. A close name has at most one edit for four
/// characters, at least one and at most three. Among equally close names the first is returned.
pub fn nearest_name<'c>(written: &str, candidates: &[&'c str]) -> Option<&'c str> {
    let folded = fold(written);
    if folded.is_empty() || folded.len() > MAX_COMPARED_CHARS {
        return None;
    }
    let allowed = (folded.len() / 4).clamp(1, 3);
    let sorted = sorted_words(written);
    let distance = |candidate: &str| {
        let direct = edit_distance(&folded, &fold(candidate));
        match (&sorted, sorted_words(candidate)) {
            (Some(own), Some(other)) => direct.min(edit_distance(own, &other)),
            _ => direct,
        }
    };
    let distances = candidates.iter().map(|candidate| (distance(candidate), *candidate));
    let (least, candidate) = distances.min_by_key(|(distance, _)| *distance)?;
    (least <= allowed && least < folded.len()).then_some(candidate)
}

/// End of a message about a misspelt name: `; did you mean …?`, or nothing if no known name is near.
pub fn hint(written: &str, candidates: &[&str]) -> String {
    nearest_name(written, candidates).map_or_else(String::new, did_you_mean)
}

/// Question with which a message ends that knows a similar name.
pub(super) fn did_you_mean(near: &str) -> String {
    format!("; did you mean `{near}`?")
}

/// Letters of a name's words, the words in alphabetical order; `None` for a single word.
fn sorted_words(name: &str) -> Option<Vec<char>> {
    let mut words: Vec<Vec<char>> = Vec::new();
    let mut in_word = false;
    let mut after_lowercase = false;
    for c in name.chars() {
        let separator = c.is_whitespace() || matches!(c, '-' | '_');
        if separator {
            in_word = false;
            continue;
        }
        let begins = !in_word || (c.is_uppercase() && after_lowercase);
        if begins {
            words.push(Vec::new());
        }
        if let Some(word) = words.last_mut() {
            word.extend(c.to_lowercase());
        }
        in_word = true;
        after_lowercase = !c.is_uppercase();
    }
    words.sort_unstable();
    (words.len() > 1).then(|| words.concat())
}

fn fold(name: &str) -> Vec<char> {
    name.chars()
        .filter(|c| !c.is_whitespace() && !matches!(c, '-' | '_'))
        .flat_map(char::to_lowercase)
        .collect()
}

/// Number of edits between two names: characters added, left out, replaced, or swapped with their neighbour.
fn edit_distance(a: &[char], b: &[char]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    let mut previous = '\0';
    for (i, &x) in a.iter().enumerate() {
        let mut next = vec![i + 1];
        for (j, &y) in b.iter().enumerate() {
            let at = |row: &[usize], j: usize| row.get(j).copied().unwrap_or(usize::MAX - 1);
            let mut least = (at(&row, j) + usize::from(x != y))
                .min(at(&row, j + 1) + 1)
                .min(at(&next, j) + 1);
            let swapped = j > 0 && previous == y && b.get(j - 1) == Some(&x) && x != y;
            if swapped {
                least = least.min(at(&before, j - 1) + 1);
            }
            next.push(least);
        }
        before = std::mem::replace(&mut row, next);
        previous = x;
    }
    row.last().copied().unwrap_or(a.len())
}

#[cfg(test)]
mod tests {
    use super::{hint, nearest_name};

    #[test]
    fn close_names_are_suggested_and_distant_ones_are_not() {
        let names = ["resource-strategy-fit", "binpack", "drf"];
        for (written, found) in [
            ("resource-strategy-fitt", Some("resource-strategy-fit")),
            ("resource_strategy_fit", Some("resource-strategy-fit")),
            ("ResourceStrategyFit", Some("resource-strategy-fit")),
            ("resoruce-strategy-fit", Some("resource-strategy-fit")),
            ("BinPack", Some("binpack")),
            ("binpak", Some("binpack")),
            (" drf ", Some("drf")),
            ("dfr", Some("drf")),
            ("gang", None),
            ("", None),
            ("no-such-plugin", None),
        ] {
            assert_eq!(nearest_name(written, &names), found, "{written}");
        }
    }

    #[test]
    fn words_in_another_order_are_the_same_name() {
        let names = ["enableJobOrder", "enableHierarchy", "resource-strategy-fit"];
        for (written, found) in [
            ("hierarchyEnable", Some("enableHierarchy")),
            ("hierarchyEnabled", Some("enableHierarchy")),
            ("hierachyEnable", Some("enableHierarchy")),
            ("jobOrderEnable", Some("enableJobOrder")),
            ("strategy-resource-fit", Some("resource-strategy-fit")),
            ("hierarchy", None),
        ] {
            assert_eq!(nearest_name(written, &names), found, "{written}");
        }
        assert_eq!(hint("hierarchyEnable", &names), "; did you mean `enableHierarchy`?");
        assert_eq!(hint("gang", &names), "");
    }
}
