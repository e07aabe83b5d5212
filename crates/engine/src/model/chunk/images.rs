//! Images of the nodes of a chunk, indexed by name. The index is computed at the first query, and again after a node
//! with other images arrives.

use std::sync::Arc;

use super::NodeChunk;
use crate::held_bytes::held_bytes;
use crate::model::constraints::NodeProperties;
use crate::model::mask::NodeMask;
use crate::model::node::NodeEntry;

/// Images of the nodes of a chunk.
#[derive(Clone, Debug, Default)]
pub struct ChunkImages {
    /// Images by name.
    images: Vec<(Arc<str>, ImageNodes)>,
    /// Properties that have the images of each node, by offset; nodes without images are left out.
    shown: Vec<(u8, Arc<NodeProperties>)>,
}

held_bytes! { ChunkImages { images, shown } }

/// Nodes that have an image.
#[derive(Clone, Debug)]
struct ImageNodes {
    nodes: NodeMask,
    /// Size in bytes at the first of them.
    first_size: i64,
}

held_bytes! { plain ImageNodes }

/// Properties of a node that has images.
fn with_images(entry: &NodeEntry) -> Option<&Arc<NodeProperties>> {
    let properties = entry.record.properties.as_ref();
    properties.filter(|own| !own.images.is_empty())
}

impl ChunkImages {
    /// Images of the nodes of a chunk.
    pub(in crate::model) fn of(chunk: &NodeChunk) -> Self {
        let mut own = Self::default();
        let mut listed: Vec<(Arc<str>, u8, i64)> = Vec::new();
        for offset in chunk.live().iter() {
            let Some(properties) = chunk.entry(offset).and_then(|entry| with_images(entry)) else {
                continue;
            };
            let number = u8::try_from(offset).unwrap_or(u8::MAX);
            own.shown.push((number, Arc::clone(properties)));
            for image in &properties.images {
                let names = image.names.iter();
                listed.extend(names.map(|name| (Arc::clone(name), number, image.size_bytes)));
            }
        }
        // A stable sort: of two images with one name on one node the first counts.
        listed.sort_by(|one, other| (&one.0, one.1).cmp(&(&other.0, other.1)));
        for of_name in listed.chunk_by(|one, next| one.0 == next.0) {
            let Some((name, _, first_size)) = of_name.first() else {
                continue;
            };
            let mut nodes = NodeMask::NONE;
            for (_, number, _) in of_name {
                nodes.set(usize::from(*number), true);
            }
            let image = ImageNodes {
                nodes,
                first_size: *first_size,
            };
            own.images.push((Arc::clone(name), image));
        }
        own
    }

    /// True if this shows a node at `offset` as it is.
    pub(in crate::model) fn shows(&self, offset: usize, entry: &NodeEntry) -> bool {
        let number = u8::try_from(offset).unwrap_or(u8::MAX);
        let shown = self.shown.binary_search_by_key(&number, |(own, _)| *own).ok();
        let shown = shown.and_then(|at| self.shown.get(at)).map(|(_, own)| own);
        match (shown, with_images(entry)) {
            (None, None) => true,
            (Some(shown), Some(own)) => Arc::ptr_eq(shown, own) || shown.images == own.images,
            (None, Some(_)) | (Some(_), None) => false,
        }
    }

    /// True if a node with images is shown at `offset`.
    pub(in crate::model) fn has(&self, offset: usize) -> bool {
        let number = u8::try_from(offset).unwrap_or(u8::MAX);
        self.shown.binary_search_by_key(&number, |(own, _)| *own).is_ok()
    }

    fn find(&self, name: &str) -> Option<&ImageNodes> {
        let at = self.images.binary_search_by(|(own, _)| (**own).cmp(name)).ok()?;
        self.images.get(at).map(|(_, image)| image)
    }

    /// Nodes that have an image of this name.
    pub fn with_image(&self, name: &str) -> NodeMask {
        self.find(name).map_or(NodeMask::NONE, |image| image.nodes)
    }

    /// Size in bytes of an image at the first node that has it; `None`: no node has it.
    pub fn first_size(&self, name: &str) -> Option<i64> {
        self.find(name).map(|image| image.first_size)
    }
}
