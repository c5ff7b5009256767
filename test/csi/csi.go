//go:build unix

// Package csi runs a CSI driver with a real attach for the end-to-end tests: our driver (test/csi/driver, whose comment
// says how it models a SAN) under the real kubernetes-csi/external-attacher. The driver's node half runs on the nodes,
// as a DaemonSet.
//
//	d := csi.ForTest(t, c, dir)
//	d.NewVolume(t, "data-0")
//	d.Violations() // empty, or what a SAN would have suffered
package csi

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/cluster/binaries"
	"github.com/forcefence/forcefence/test/csi/store"
	"github.com/forcefence/forcefence/test/kit"
)

const (
	// Name is the driver's.
	Name = store.Driver
	// StorageClass is the class of the volumes. Nothing provisions it: a claim binds to a volume that exists.
	StorageClass = "loop"
	// Image is the name of the node half's image, in which Program is /bin/driver.
	Image = "forcefence.test/csi:1"

	attacherUser = "forcefence-test-csi-attacher"
)

// manifests make the driver known, let the attacher do its work (the rules are those of its v4 manifests, without
// leases), and run the node half. That has the node's /dev, since loop devices appear at any time, and mounts into the
// kubelet's folder with propagation to the node. It never speaks to the API server, and starts without the hook.
const manifests = `apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata: {name: ` + Name + `}
spec: {attachRequired: true, podInfoOnMount: false, fsGroupPolicy: None}
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: ` + StorageClass + `}
provisioner: kubernetes.io/no-provisioner
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: ` + attacherUser + `}
rules:
- {apiGroups: [""], resources: [persistentvolumes], verbs: [get, list, watch, patch]}
- {apiGroups: [storage.k8s.io], resources: [csinodes], verbs: [get, list, watch]}
- {apiGroups: [storage.k8s.io], resources: [volumeattachments], verbs: [get, list, watch, patch]}
- {apiGroups: [storage.k8s.io], resources: [volumeattachments/status], verbs: [patch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: ` + attacherUser + `}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: ` + attacherUser + `}
subjects: [{kind: User, apiGroup: rbac.authorization.k8s.io, name: ` + attacherUser + `}]
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: csi-loop-node, namespace: kube-system}
spec:
  selector: {matchLabels: {app: csi-loop-node}}
  template:
    metadata: {labels: {app: csi-loop-node}, annotations: {forcefence.io/tolerate-missing: "true"}}
    spec:
      hostNetwork: true
      automountServiceAccountToken: false
      priorityClassName: system-node-critical
      tolerations: [{operator: Exists}]
      containers:
      - name: driver
        image: ` + Image + `
        imagePullPolicy: Never
        securityContext: {privileged: true}
        command: [/bin/driver, --endpoint, "unix:///var/lib/kubelet/plugins/` + Name + `/csi.sock",
          --store, %[1]q, --node, $(NODE)]
        env: [{name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}]
        volumeMounts:
        - {name: kubelet, mountPath: /var/lib/kubelet, mountPropagation: Bidirectional}
        - {name: store, mountPath: %[1]q}
        - {name: dev, mountPath: /dev}
      volumes:
      - {name: kubelet, hostPath: {path: /var/lib/kubelet, type: Directory}}
      - {name: store, hostPath: {path: %[1]q, type: Directory}}
      - {name: dev, hostPath: {path: /dev, type: Directory}}
`

// Driver is the controller half with its attacher.
type Driver struct {
	Program string // static: it goes into the node half's image as it is

	cluster  *cluster.Cluster
	store    *store.Store
	attacher *cluster.Part
}

// ForTest installs the driver in the cluster, serves the controller half, and starts the attacher; both end with the
// test. The backing store is a folder that every node must see under the
// same path; it stays.
func ForTest(t testing.TB, c *cluster.Cluster, folder string) *Driver {
	t.Helper()
	d := &Driver{Program: kit.BuildProgram(t, "test/csi/driver"), cluster: c}
	programs, err := binaries.Build(t.Context(), binaries.Options{Names: []string{binaries.CSIAttacher}})
	kit.Must(t, err)
	d.store, err = store.Open(folder)
	kit.Must(t, err)
	dir := kit.SocketDir(t)
	file := func(name string) string { return filepath.Join(dir, name) }
	kit.Must(t, os.WriteFile(file("objects.yaml"), fmt.Appendf(nil, manifests, d.store.Dir()), 0o600))
	if out, err := c.Kubectl(t.Context(), "apply", "-f", file("objects.yaml")); err != nil {
		t.Fatalf("installing the CSI driver: %v: %s", err, out)
	}
	kit.Must(t, c.WriteKubeconfig(file("kubeconfig"), attacherUser))
	listener, err := net.Listen("unix", file("csi.sock"))
	kit.Must(t, err)
	server := grpc.NewServer()
	controller := &store.Controller{Store: d.store}
	csi.RegisterIdentityServer(server, controller)
	csi.RegisterControllerServer(server, controller)
	serving := make(chan error, 1)
	go func() { serving <- server.Serve(listener) }()
	t.Cleanup(func() { server.Stop(); kit.Must(t, <-serving) })
	d.attacher = cluster.NewPart(binaries.CSIAttacher, filepath.Join(programs, binaries.CSIAttacher), []string{
		"--kubeconfig=" + file("kubeconfig"), "--csi-address=" + file("csi.sock"), "--kube-api-qps=1000",
		"--kube-api-burst=1000", "--retry-interval-start=100ms", "--retry-interval-max=2s", "--v=4",
	}, file("attacher.log"), nil, nil)
	t.Cleanup(d.attacher.Stop)
	kit.Must(t, d.attacher.Launch())
	return d
}

// Store is the backing store.
func (d *Driver) Store() *store.Store { return d.store }

// Attacher is the external-attacher's process.
func (d *Driver) Attacher() *cluster.Part { return d.attacher }

// Violations are those of the log; a log that cannot be read is one.
func (d *Driver) Violations() []string {
	log, err := d.store.Log()
	out := store.Violations(log)
	if err != nil {
		out = append(out, err.Error())
	}
	return out
}

// PowerCut tells the log that a boot of a node is over. Call it once the last process of the node has ended, not
// before.
func (d *Driver) PowerCut(node, boot string) error {
	return d.store.Append(store.Event{Kind: store.Off, Node: node, Boot: boot})
}

// NewVolume makes a volume of 16 MiB in the store, and its PersistentVolume for one claim, such as a StatefulSet's.
func (d *Driver) NewVolume(t testing.TB, name string) {
	t.Helper()
	kit.Must(t, d.store.Create(name))
	_, err := d.cluster.Client().CoreV1().PersistentVolumes().Create(t.Context(), &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: corev1.ResourceList{
				corev1.ResourceStorage: *resource.NewQuantity(store.Size, resource.BinarySI)},
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			StorageClassName: StorageClass, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				CSI: &corev1.CSIPersistentVolumeSource{Driver: Name, VolumeHandle: name, FSType: "ext4"},
			},
		},
	}, metav1.CreateOptions{})
	kit.Must(t, err)
}
