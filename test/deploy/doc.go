// Package deploy tests the manifests in deploy/ on a real control plane. The real kubectl renders and applies them as a
// user would. Then everything that the admission policies and RBAC must refuse is tried under the accounts concerned,
// and everything that they must allow. A whole fence runs under exactly the ServiceAccount's token, and the API
// server's audit log shows which of the granted rights it used. The chart, which renders to the same manifests, is
// installed, upgraded, rolled back and uninstalled by the real Helm.
//
// All of it is in the tests.
package deploy
