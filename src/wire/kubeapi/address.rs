// SPDX-License-Identifier: Apache-2.0
//! Builds the URLs of requests. Paths contain names that others chose, so a path is used verbatim or rejected.

use reqwest::Url;

pub(super) fn is_http(url: &Url) -> bool {
    matches!(url.scheme(), "https" | "http") && url.has_host()
}

/// Returns the URL without anything that may be secret. User information would also become a separate header.
pub(super) fn public_form(url: &Url) -> Url {
    let mut url = url.clone();
    // Both fail only for URLs that cannot have user information.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.set_query(None);
    url.set_fragment(None);
    url
}

/// Builds the URL of a request. A path contains names that others chose: none of them may lead to another resource.
pub(super) fn request_url(base: &Url, path: &str, query: &[(&'static str, String)]) -> Option<Url> {
    let mut url = base.clone();
    let segments: Vec<&str> = path.strip_prefix('/')?.split('/').collect();
    if segments.iter().any(|segment| {
        matches!(*segment, "" | "." | "..")
            || segment.contains(['?', '#', '%', '\\'])
            // URL parsing silently drops tabs and line ends, which can turn other text into `..`.
            || segment.contains(char::is_control)
    }) {
        return None;
    }
    url.path_segments_mut()
        .ok()?
        .pop_if_empty()
        .extend(segments);
    if !query.is_empty() {
        url.query_pairs_mut().extend_pairs(query);
    }
    Some(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        text.parse().unwrap()
    }

    #[test]
    fn a_path_prefix_of_the_server_is_kept() {
        for server in [
            "https://r.example/k8s/clusters/local",
            "https://r.example/k8s/clusters/local/",
        ] {
            let requested =
                request_url(&url(server), "/api/v1/nodes/n", &[("limit", "5".into())]).unwrap();
            assert_eq!(
                requested.as_str(),
                "https://r.example/k8s/clusters/local/api/v1/nodes/n?limit=5"
            );
        }
        let requested = request_url(&url("https://10.0.0.1:6443"), "/version", &[]).unwrap();
        assert_eq!(requested.as_str(), "https://10.0.0.1:6443/version");
    }

    #[test]
    fn a_name_cannot_lead_to_another_resource() {
        let server = url("https://a.example");
        for path in [
            "",
            "/",
            "api",
            "//b.example/x",
            "/api/v1/nodes/",
            "/api/v1/nodes/..",
            "/api/./v1",
            "/a/n?x=1",
            "/a/n#x",
            "/a/%2e%2e",
            "/a\\..\\b",
            "/api/v1/nodes/.\t.",
            "/a/n\n",
        ] {
            assert_eq!(request_url(&server, path, &[]), None, "{path}");
        }
    }

    #[test]
    fn other_characters_are_encoded() {
        let requested = request_url(&url("https://a.example"), "/a/b c:ü", &[]).unwrap();
        assert_eq!(requested.as_str(), "https://a.example/a/b%20c:%C3%BC");
    }

    #[test]
    fn the_public_form_of_a_url_has_no_secret() {
        let public = public_form(&url("https://user:pass@a.example:6443/x?token=t#f"));
        assert_eq!(public.as_str(), "https://a.example:6443/x");
    }
}
