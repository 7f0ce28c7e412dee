//! stub
pub mod distribution;
pub mod machine;
