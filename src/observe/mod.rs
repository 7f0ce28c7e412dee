//! stub
pub mod machine;
