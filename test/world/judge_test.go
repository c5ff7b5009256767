package world

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// apps are how many pods each workload is to have.
var apps = map[string]int{"db": 20, "queue": 80, "web": 10, "agent": 6}

// healthy is what compare finds nothing wrong with.
func healthy() (pods []*corev1.Pod, runs map[types.UID][]string) {
	runs = map[types.UID][]string{}
	for app, count := range apps {
		for i := range count {
			name := fmt.Sprintf("%s-%d", app, i)
			p := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: map[string]string{"app": app}}}
			p.Spec.NodeName = fmt.Sprintf("node-%d", i%6+1)
			pods = append(pods, p)
			runs[p.UID] = []string{p.Spec.NodeName}
		}
	}
	return pods, runs
}

func TestCompare(t *testing.T) {
	for _, tt := range []struct {
		name    string
		change  func(pods []*corev1.Pod, runs map[types.UID][]string)
		unready string
		want    string
	}{
		{"all is well", func([]*corev1.Pod, map[types.UID][]string) {}, "", ""},
		{"one runs nowhere", func(_ []*corev1.Pod, runs map[types.UID][]string) { delete(runs, "db-0") }, "",
			"pod db-0 runs on 0 machines []"},
		{"one runs twice",
			func(_ []*corev1.Pod, runs map[types.UID][]string) { runs["db-0"] = []string{"node-1", "node-2"} }, "",
			"pod db-0 runs on 2 machines [node-1 node-2]"},
		{"one runs elsewhere", func(_ []*corev1.Pod, runs map[types.UID][]string) { runs["db-0"] = []string{"node-6"} },
			"",
			"pod db-0 runs on node-6, the API server says node-1"},
		{"one is not Ready", func([]*corev1.Pod, map[types.UID][]string) {}, "db-0",
			"pod db-0 on node-1 is not Ready, or is going"},
		{"a deleted one runs on",
			func(_ []*corev1.Pod, runs map[types.UID][]string) { runs["old"] = []string{"node-1"} }, "",
			"a pod that the API server does not know runs on [node-1] (UID old)"},
		{"one is missing", func(pods []*corev1.Pod, runs map[types.UID][]string) {
			for _, p := range pods {
				if p.Name == "web-0" {
					p.Labels["app"] = "db"
				}
			}
		}, "", "db has 21 pods, want 20"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			pods, runs := healthy()
			tt.change(pods, runs)
			var ready []*corev1.Pod
			for _, p := range pods {
				if p.Name != tt.unready {
					ready = append(ready, p)
				}
			}
			if got := compare(pods, ready, runs, apps); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
