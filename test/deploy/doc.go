// Package deploy tests the chart of deploy/ on a real control plane. The real Helm renders it, and the real kubectl
// applies the objects. Then everything that the admission policies and RBAC must refuse is tried under the accounts
// concerned, and everything that they must allow. A whole fence runs under exactly the ServiceAccount's token, and the
// API server's audit log shows which of the granted rights it used. The real Helm also installs, upgrades, rolls back
// and uninstalls the chart.
//
// All of it is in the tests.
package deploy
