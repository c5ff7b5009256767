package nri

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/taint"
)

// TestMemoryFile checks that the memory is read back by the same node for the same mark, and that other content is
// refused.
func TestMemoryFile(t *testing.T) {
	c := Config{NodeName: "n1", TaintKey: taint.DefaultKey, DataDir: t.TempDir()}
	if _, err := readMemory(c); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: got %v", err)
	}
	for _, want := range [][]string{{"a", "b"}, {}} {
		if err := writeMemory(c, PreInstalledIndex, want); err != nil {
			t.Fatal(err)
		}
		if got, err := readMemory(c); err != nil || !slices.Equal(got, want) {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	}
	file := filepath.Join(c.DataDir, MemoryFile)
	if left, err := os.ReadDir(c.DataDir); err != nil || len(left) != 1 || left[0].Name() != MemoryFile {
		t.Errorf("left %q, %v", left, err)
	}
	const good = `{"node":"n1","taintKey":"forcefence.io/node-shutdown","exempt":["a"]}`
	many := `"a"` + strings.Repeat(`,"a"`, memoryPods)
	for name, text := range map[string]string{
		"empty":            "",
		"torn":             good[:len(good)-2],
		"zeros":            strings.Repeat("\x00", 100),
		"two":              good + good,
		"unknown field":    strings.Replace(good, `"node"`, `"all":true,"node"`, 1),
		"another node":     strings.Replace(good, "n1", "n2", 1),
		"another mark":     strings.Replace(good, "node-shutdown", "off", 1),
		"no UID":           strings.Replace(good, `"a"`, `""`, 1),
		"a UID too long":   strings.Replace(good, `"a"`, `"`+strings.Repeat("a", memoryUID+1)+`"`, 1),
		"too many pods":    strings.Replace(good, `"a"`, many, 1),
		"too many bytes":   good + strings.Repeat(" ", memoryBytes),
		"numbers":          strings.Replace(good, `"a"`, `1`, 1),
		"a list":           "[" + good + "]",
		"nothing of a pod": "{}",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := readMemory(c); err == nil || got != nil {
			t.Errorf("%s: got %q, %v", name, got, err)
		}
	}
	if err := os.WriteFile(file, []byte(good), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readMemory(c); err != nil {
		t.Errorf("the one that the others are made of: got %v", err)
	}
}

// TestMemoryOfMany checks that no more pods are written than are read back.
func TestMemoryOfMany(t *testing.T) {
	c := Config{NodeName: "n1", TaintKey: taint.DefaultKey, DataDir: t.TempDir()}
	var uids []string
	for i := range memoryPods + 1 {
		uids = append(uids, fmt.Sprintf("%036d", i))
	}
	if err := writeMemory(c, PreInstalledIndex, uids); err != nil {
		t.Fatal(err)
	}
	if got, err := readMemory(c); err != nil || len(got) != memoryPods {
		t.Errorf("got %d, %v, want %d", len(got), err, memoryPods)
	}
}

// TestMemoryOfTwo checks that a reader gets the whole memory of one plugin while both write.
func TestMemoryOfTwo(t *testing.T) {
	c := Config{NodeName: "n1", TaintKey: taint.DefaultKey, DataDir: t.TempDir()}
	both := [][]string{{"a"}, {"a", strings.Repeat("b", memoryUID), "c"}}
	if err := writeMemory(c, PreInstalledIndex, both[0]); err != nil {
		t.Fatal(err)
	}
	var writers sync.WaitGroup
	for i, index := range []string{PreInstalledIndex, DaemonIndex} {
		writers.Go(func() {
			for range 50 {
				if err := writeMemory(c, index, both[i]); err != nil {
					t.Error(err)
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { writers.Wait(); close(done) }()
	for {
		got, err := readMemory(c)
		if err != nil || !slices.Equal(got, both[0]) && !slices.Equal(got, both[1]) {
			t.Errorf("got %q, %v", got, err)
		}
		select {
		case <-done:
			return
		default:
		}
	}
}

// TestMemoryWhenItChanges checks that the file is written after this process listed the pods, and again whenever the
// exempt pods change, but not for other changes.
func TestMemoryWhenItChanges(t *testing.T) {
	h := &hook{name: PreInstalledIndex + "-" + BaseName,
		config: &Config{NodeName: "n1", TaintKey: taint.DefaultKey, DataDir: t.TempDir()}}
	h.view = newView("n1", taint.DefaultKey, testBoot)
	file := filepath.Join(h.config.DataDir, MemoryFile)
	remember := func(want bool) {
		t.Helper()
		_ = os.Remove(file)
		if err := h.saveExempt(); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(file); (err == nil) != want {
			t.Errorf("written: %v, want %v", err == nil, want)
		}
	}
	h.view.recallExempt([]string{"x"})
	d, other := testPod("d", daemon), testPod("e", daemon)
	h.view.seePod(&d, false)
	remember(false)
	h.view.listPods([]corev1.Pod{d})
	remember(true)
	remember(false)
	a := testPod("a")
	h.view.seePod(&a, false)
	remember(false)
	h.view.seePod(&other, false)
	remember(true)
	if got, err := readMemory(*h.config); err != nil || !slices.Equal(got, []string{"d", "e"}) {
		t.Errorf("got %q, %v", got, err)
	}
	h.view.seePod(&other, true)
	remember(true)
	h.view.listPods(nil)
	remember(true)
}

// TestMemoryCountsUntilTheFirstList checks that the memory counts until the first list of the boot, and never after it.
func TestMemoryCountsUntilTheFirstList(t *testing.T) {
	boot := func() *view {
		v := newView("n1", taint.DefaultKey, testBoot)
		v.recallExempt([]string{"d"})
		return v
	}
	d := askFor("d", map[string]string{"kubernetes.io/config.source": "api"})
	v := boot()
	if got := answer(v, d); got != "" {
		t.Errorf("nothing was read: got %q", got)
	}
	if got := answer(v, askFor("a", nil)); got == "" {
		t.Error("an ordinary pod starts")
	}
	if got := answer(v, askFor("", nil)); got == "" {
		t.Error("a pod without an UID starts")
	}
	v.seeNode(markedNode, true, time.Now())
	if got := answer(v, d); got != "" {
		t.Errorf("the mark was read, and no pod yet: got %q", got)
	}
	v.listPods(nil)
	for name, see := range map[string]func(){
		"listed": func() {}, "the Node was deleted": v.forgetNode,
		"it is clear": func() { v.seeNode(clearNode, true, time.Now()) }} {
		if see(); answer(v, d) == "" {
			t.Errorf("%s: a pod starts that the list of this boot does not have", name)
		}
	}
	// A plugin that restarts on this boot knows that the previous one has listed the pods.
	var s Status
	v.node.Read = true
	v.fillStatus(&s)
	again := boot()
	if !again.restoreStatus(s) || answer(again, d) == "" {
		t.Error("after a restart: a pod starts that the list of this boot does not have")
	}
}

// TestMemoryOfWhatLasts checks that only an exemption that a pod cannot lose is remembered (TestAnExemptionLasts tests
// that on a real API server).
func TestMemoryOfWhatLasts(t *testing.T) {
	exists := func(key string, effect corev1.TaintEffect) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Tolerations = append(p.Spec.Tolerations,
				corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: effect})
		}
	}
	static := func(p *corev1.Pod) { p.Annotations = map[string]string{"kubernetes.io/config.source": "file"} }
	for name, tt := range map[string]struct {
		pod  corev1.Pod
		want bool
	}{
		"ordinary":           {testPod("a"), false},
		"tolerates the mark": {testPod("a", exists(taint.DefaultKey, "")), true},
		"tolerates the mark's effect": {testPod("a", exists(taint.DefaultKey, corev1.TaintEffectNoSchedule)),
			true},
		"tolerates everything":          {testPod("a", exists("", "")), true},
		"tolerates another taint":       {testPod("a", exists("example.net/x", "")), false},
		"of a DaemonSet":                {testPod("a", daemon), true},
		"tolerates what can get an end": {testPod("a", exists("", corev1.TaintEffectNoExecute)), false},
		"that, and what cannot": {
			testPod("a", exists("", corev1.TaintEffectNoExecute), exists("", corev1.TaintEffectNoSchedule)), true},
		"that, of a DaemonSet":                {testPod("a", exists("", corev1.TaintEffectNoExecute), daemon), true},
		"calls itself static":                 {testPod("a", static), false},
		"calls itself static, of a DaemonSet": {testPod("a", static, daemon), true},
	} {
		if got := hasLastingExemption(&tt.pod, taint.DefaultKey); got != tt.want {
			t.Errorf("%s: got %v, want %v", name, got, tt.want)
		}
		if tt.want && taint.ExemptionOf(&tt.pod, taint.DefaultKey) == taint.NotExempt {
			t.Errorf("%s: remembered, and not exempt", name)
		}
	}
}

// FuzzMemory checks that no content of the file makes the hook fail, or start a pod without a UID.
func FuzzMemory(f *testing.F) {
	f.Add([]byte(`{"node":"n1","taintKey":"forcefence.io/node-shutdown","exempt":["a"]}`))
	f.Add([]byte(`{"exempt":["",null]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := parseMemory(text)
		if err != nil {
			return
		}
		v := newView("n1", taint.DefaultKey, testBoot)
		v.recallExempt(m.Exempt)
		if answer(v, askFor("", nil)) == "" {
			t.Error("a pod without an UID starts")
		}
	})
}
