//! stub
/// stub
#[derive(Debug, Clone)]
pub struct Distribution {
    /// stub
    pub node_name: Option<String>,
    /// stub
    pub node_labels: Vec<StaticLabel>,
}
/// stub
#[derive(Debug, Clone)]
pub struct StaticLabel {
    /// stub
    pub key: String,
    /// stub
    pub value: String,
    /// stub
    pub origin: std::path::PathBuf,
}
impl Distribution {
    /// stub
    pub fn with_node_name(n: &str) -> Self {
        Self {
            node_name: Some(n.to_owned()),
            node_labels: vec![],
        }
    }
    /// stub
    pub fn configured_node_name(&self) -> Option<&str> {
        self.node_name.as_deref()
    }
}
