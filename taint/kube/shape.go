package kube

import (
	"reflect"
	"slices"
	"strconv"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/taint"
)

// shape is what is kept of a message while it is read.
type shape struct {
	fields  map[uint64]*shape // by protobuf's number; nil: all of it
	rest    *shape            // the shape of fields that are not named; nil: they are dropped
	entries map[string]bool   // of a map: the keys that are kept; nil: all
	part    string            // the first two names of its path, such as spec.volumes
	empty   bool              // only that the field is there
	text    bool              // no message
	// namespace is whether it is the object's namespace.
	namespace bool
}

// The fields of metadata that say which object it is, and who keeps it. By the annotation a watch says that its first
// list is over.
var metadata = []string{
	"metadata.name", "metadata.namespace", "metadata.uid", "metadata.resourceVersion", "metadata.generation",
	"metadata.creationTimestamp", "metadata.deletionTimestamp", "metadata.deletionGracePeriodSeconds",
	"metadata.finalizers", "metadata.ownerReferences",
	"metadata.annotations[" + metav1.InitialEventsAnnotationKey + "]",
}

// podPaths are what decisions read of a pod. In a path, NAME[KEY] is one entry of a map, and NAME! says only whether
// the field is there; * is each field that has no path of its own.
var podPaths = append([]string{
	"metadata.labels",
	"metadata.annotations[kubernetes.io/config.source]", "metadata.annotations[kubernetes.io/config.mirror]",
	"metadata.annotations[" + taint.SparedAnnotation + "]",
	"spec.nodeName", "spec.tolerations", "spec.priority", "spec.volumes.name",
	"spec.volumes.volumeSource.persistentVolumeClaim.claimName", "spec.volumes.volumeSource.*!",
	"status.phase", "status.reason", "status.message", "status.conditions.type", "status.conditions.status",
	"status.containerStatuses.state.*!", "status.initContainerStatuses.state.*!",
}, metadata...)

// roomPaths are what an estimate of room reads of a pod.
var roomPaths = append([]string{
	"spec.overhead", "spec.nodeSelector", "spec.resourceClaims", "spec.resources.requests", "spec.affinity",
	"spec.topologySpreadConstraints",
	"spec.containers.restartPolicy", "spec.containers.resources.requests", "spec.containers.ports.hostPort",
	"spec.containers.ports.protocol",
	"spec.initContainers.restartPolicy", "spec.initContainers.resources.requests",
	"spec.initContainers.ports.hostPort", "spec.initContainers.ports.protocol",
}, podPaths...)

// shapes are the kinds, as apiVersion and kind, of which clients keep only what is read (BoundReads).
var shapes = map[string]*shape{
	"v1 Pod": shapeOf[corev1.Pod](podPaths),
	"v1 PersistentVolumeClaim": shapeOf[corev1.PersistentVolumeClaim](append([]string{
		"spec.volumeName"}, metadata...)),
	"v1 PersistentVolume": shapeOf[corev1.PersistentVolume](append(slices.Clip(metadata),
		"metadata.labels", "metadata.annotations", "spec")),
	"storage.k8s.io/v1 VolumeAttachment": shapeOf[storagev1.VolumeAttachment](append([]string{
		"spec.attacher", "spec.nodeName", "spec.source.persistentVolumeName", "spec.source.*!", "status.attached",
	}, metadata...)),
}

// roomPod replaces the shape of pods for an estimate of room.
var roomPod = shapeOf[corev1.Pod](roomPaths)

// heldLeases are the shapes for clients that read who holds Leases, and write them only by patches.
var heldLeases = map[string]*shape{
	"coordination.k8s.io/v1 Lease": shapeOf[coordinationv1.Lease](append([]string{
		"spec.holderIdentity", "spec.renewTime", "spec.leaseDurationSeconds"}, metadata...)),
}

// shapeOf returns the shape of the paths of T.
func shapeOf[T any](paths []string) *shape {
	root := &shape{fields: map[uint64]*shape{}}
	for _, path := range paths {
		at, t := root, reflect.TypeFor[T]()
		bare, key, _ := strings.Cut(path, "[")
		bare, empty := strings.CutSuffix(bare, "!")
		names := strings.Split(bare, ".")
		for i, name := range names {
			if name == "*" {
				at.rest = &shape{part: at.part, empty: empty}
				break
			}
			number, field := fieldOf(t, name)
			next := at.fields[number]
			if next == nil {
				next = &shape{part: strings.Join(names[:min(i+1, 2)], ".")}
				at.fields[number] = next
			}
			for t = field; t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice; {
				t = t.Elem()
			}
			next.namespace = path == "metadata.namespace" && i == 1
			next.text = t.Kind() != reflect.Struct && t.Kind() != reflect.Map
			if at = next; i < len(names)-1 && at.fields == nil {
				at.fields = map[uint64]*shape{}
			}
		}
		switch {
		case key == "":
			at.entries = nil
		case at.entries == nil:
			at.entries = map[string]bool{}
			fallthrough
		default:
			at.entries[strings.TrimSuffix(key, "]")] = true
		}
	}
	return root
}

// fieldOf returns the number and the type of a struct's field, by its name in protobuf.
func fieldOf(t reflect.Type, name string) (uint64, reflect.Type) {
	for i := range t.NumField() {
		parts := strings.Split(t.Field(i).Tag.Get("protobuf"), ",")
		if len(parts) < 4 || parts[3] != "name="+name {
			continue
		}
		number, err := strconv.ParseUint(parts[1], 10, 32)
		if err == nil {
			return number, t.Field(i).Type
		}
	}
	panic(t.String() + " has no field " + name) // the first test finds it
}
