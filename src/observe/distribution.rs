//! stub
/// stub
pub fn read_distribution(
    _r: &crate::root::Root,
) -> (Vec<crate::facts::distribution::Distribution>, Vec<String>) {
    (vec![], vec![])
}
