//! Suggestion: the known name that is similar to a misspelt one.

/// Most similar candidate: equal except for case, dashes and blanks, or within one edit per four characters (at least
/// one, at most three).
pub(crate) fn nearest_name<'c>(written: &str, candidates: &[&'c str]) -> Option<&'c str> {
    let folded = fold(written);
    if folded.is_empty() || folded.len() > 100 {
        return None;
    }
    let allowed = (folded.len() / 4).clamp(1, 3);
    let distances = candidates
        .iter()
        .map(|candidate| (edit_distance(&folded, &fold(candidate)), *candidate));
    let (least, candidate) = distances.min_by_key(|(distance, _)| *distance)?;
    (least <= allowed && least < folded.len()).then_some(candidate)
}

fn fold(name: &str) -> Vec<char> {
    name.chars()
        .filter(|c| !c.is_whitespace() && !matches!(c, '-' | '_'))
        .flat_map(char::to_lowercase)
        .collect()
}

/// Number of edits between two names: added, omitted, replaced, or swapped characters.
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
    use super::nearest_name;

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
}
