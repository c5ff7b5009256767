// Package deploy holds the manifests in deploy/ against a real control plane: they are rendered and applied by the real
// kubectl as a user would, then everything that the admission policies and RBAC must refuse is tried under the accounts
// concerned, and everything that they must not get in the way of. A whole fence runs under exactly the ServiceAccount's
// token, and the API server's audit log tells which of the granted rights it used. The chart, of which the manifests
// are the rendering, is installed, upgraded, rolled back and uninstalled by the real Helm.
//
// All of it is in the tests.
package deploy
