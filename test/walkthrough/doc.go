// Package walkthrough types what an operator types, from the install to the uninstall, on four real nodes (test/nodes)
// under the real control plane, with the image of `make image`, whose pods run there as the chart has them, and volumes
// under the real external-attacher (test/csi). What it typed and what was printed becomes
// docs/reference/walkthrough.md; a real Chromium takes the pictures of the status page. `make walkthrough` runs it, as
// root.
package walkthrough
