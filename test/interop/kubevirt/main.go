// Command kubevirt runs KubeVirt's virt-controller. With the argument "install" it prints what virt-operator creates
// for it: CRDs, a namespace, an account and its roles. All of that is the project's own code.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"kubevirt.io/kubevirt/pkg/virt-controller/watch"
	"kubevirt.io/kubevirt/pkg/virt-operator/resource/generate/components"
	"kubevirt.io/kubevirt/pkg/virt-operator/resource/generate/rbac"
)

// namespace is where virt-controller looks for the KubeVirt outside of a pod.
const namespace = "kubevirt"

func main() {
	if !slices.Equal(os.Args[1:], []string{"install"}) {
		watch.Execute() // its flags are --kubeconfig, --listen and others
		return
	}
	if err := printObjects(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// printObjects prints a List in JSON.
func printObjects() error {
	var objects []runtime.Object
	for _, definition := range []func() (*apiextensionsv1.CustomResourceDefinition, error){
		components.NewKubeVirtCrd, components.NewVirtualMachineInstanceCrd, components.NewPresetCrd,
		components.NewReplicaSetCrd, components.NewVirtualMachineCrd, components.NewVirtualMachineInstanceMigrationCrd,
		components.NewVirtualMachineSnapshotCrd, components.NewVirtualMachineSnapshotContentCrd,
		components.NewVirtualMachineRestoreCrd, components.NewVirtualMachineInstancetypeCrd,
		components.NewVirtualMachineClusterInstancetypeCrd, components.NewVirtualMachinePoolCrd,
		components.NewMigrationPolicyCrd, components.NewVirtualMachinePreferenceCrd,
		components.NewVirtualMachineClusterPreferenceCrd, components.NewVirtualMachineExportCrd,
		components.NewVirtualMachineCloneCrd, components.NewVirtualMachineBackupCrd,
		components.NewVirtualMachineBackupTrackerCrd,
	} {
		crd, err := definition()
		if err != nil {
			return err
		}
		objects = append(objects, crd)
	}
	objects = append(objects, &corev1.Namespace{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
		ObjectMeta: metav1.ObjectMeta{Name: namespace},
	})
	objects = append(objects, rbac.GetAllController(namespace, false)...)
	list := metav1.List{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "List"}}
	for _, o := range objects {
		list.Items = append(list.Items, runtime.RawExtension{Object: o})
	}
	return json.NewEncoder(os.Stdout).Encode(list)
}
