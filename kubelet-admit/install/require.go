package install

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/pelletier/go-toml/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/forcefence/forcefence/kubelet-admit/nri"
	"github.com/forcefence/forcefence/taint"
)

// TolerateAnnotation is what a pod carries, with the value "true", to start also while the plugin is missing. It is for
// exempt pods, which the hook never holds. A host whose runtime has another key configured keeps that key.
const TolerateAnnotation = "forcefence.io/tolerate-missing"

// refusal is why the plugin is not required although that was requested: a person has to change something first. It is
// no failure: the hook works, and the node's protection names the reason.
type refusal struct{ error }

// requirePlugin makes the runtime refuse containers while the plugin is missing. It enables nothing if an exempt pod
// would be refused as well. What was enabled before stays even then: otherwise a DaemonSet without the annotation would
// weaken every node. Our own DaemonSet has the annotation, so a node cannot lock itself out.
func (in *installer) requirePlugin(ctx context.Context) error {
	if !in.facts.Version.AtLeast(kinds[in.Site.Runtime].validator) {
		return refusal{fmt.Errorf("%s %s cannot require a plugin", in.Site.Runtime, in.facts.Version)}
	}
	base, err := tryConfig(ctx, in.host, in.Site, nil)
	if err != nil {
		return fmt.Errorf("testing the runtime's configuration without %s: %w", in.Site.dropIn(), err)
	}
	want := base.nri
	want.Validator = true
	if !slices.Contains(want.Required, nri.BaseName) {
		want.Required = append(slices.Clone(want.Required), nri.BaseName)
	}
	want.Annotation = cmp.Or(want.Annotation, TolerateAnnotation)
	enabled := in.facts.NRI.requiresUs()

	intolerant, err := in.listIntolerant(ctx, want.Annotation)
	if err != nil {
		return err
	}
	if len(intolerant) > 0 {
		why := fmt.Sprintf("these exempt pods lack the annotation %s: \"true\", so they could not start without it: %s",
			want.Annotation, strings.Join(intolerant, ", "))
		if !enabled {
			return refusal{errors.New(why)}
		}
		in.addWarning("the plugin is required, and %s", why)
	}
	if reflect.DeepEqual(want, base.nri) {
		in.reportDone("required plugins", "unchanged: the host's own configuration requires it")
		return nil
	}
	content, err := in.dropInText(want)
	if err != nil {
		return err
	}
	file := in.Site.dropIn()
	s, err := in.host.stageFile(file, 0o644, bytes.NewReader(content))
	if errors.Is(err, syscall.EROFS) {
		return refusal{fmt.Errorf("%s cannot be written: %w", file, err)}
	}
	if err != nil {
		return err
	}
	if s == nil && enabled {
		in.reportDone(file, "unchanged")
		return nil
	}
	would, err := tryConfig(ctx, in.host, in.Site, content)
	if err != nil {
		return fmt.Errorf("testing %s: %w", file, err)
	}
	if err := onlyValidator(in.Site, base, would, want); err != nil {
		return refusal{fmt.Errorf("testing %s: %w", file, err)}
	}
	return in.replaceDropIn(ctx, s, want)
}

// replaceDropIn puts the drop-in in its place, and undoes that if the runtime does not read it as intended. If the
// check itself is interrupted, the drop-in stays: its text passed a trial before, and the next install checks it again.
func (in *installer) replaceDropIn(ctx context.Context, s *staged, want NRI) error {
	file := in.Site.dropIn()
	old, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if s == nil {
		old = nil // the new one is in place already, and the runtime ignores it
	}
	required := in.requiredNow()
	err = in.host.updatePending(in.Site, func(r *pendingState) { r.Config, r.Released = !required, false })
	if err != nil {
		return err
	}
	if err := in.host.commitFile(s); err != nil {
		return err
	}
	now, err := dumpConfig(ctx, in.host, in.Site)
	if asked := (dumpError{}); errors.As(err, &asked) && !ranAndFailed(err) {
		return fmt.Errorf("checking %s, which stays in place: %w", file, err)
	}
	if err == nil && !reflect.DeepEqual(now.nri, want) {
		err = refusal{fmt.Errorf("the runtime ignores it: let %s import %s, and set required_plugins in no later file",
			in.Site.Config, filepath.Join(in.Site.ConfDir, "*"+filepath.Ext(file)))}
	}
	if err == nil {
		in.reportDone(file, "written")
		in.dropInWritten = true
		return nil
	}
	undo := func() error {
		if old == nil {
			if _, err := in.host.removePath(file, os.Remove); err != nil || !required {
				return err
			}
			return in.host.updatePending(in.Site, func(r *pendingState) { r.Released = true })
		}
		s, err := in.host.stageFile(file, 0o644, bytes.NewReader(old))
		if err != nil {
			return err
		}
		return in.host.commitFile(s)
	}
	if bad := undo(); bad != nil {
		return fmt.Errorf("undoing the change of %s: %w (%w)", file, bad, err)
	}
	return fmt.Errorf("checking %s, whose change was undone: %w", file, err)
}

// removeDropIn removes our drop-in, if there is one.
func (in *installer) removeDropIn(s Site, why string) error {
	if _, err := os.Lstat(s.dropIn()); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	// Not ConfigPending: a file's time does not show whether the plugin was required before.
	if f := in.facts; f.NRI.requiresUs() && !f.requiredLater && f.Running {
		if err := in.host.updatePending(s, func(r *pendingState) { r.Released = true }); err != nil {
			return err
		}
	}
	return in.remove(s.dropIn(), os.Remove, why)
}

// dropInText returns the drop-in's text. A list in a later file replaces that of an earlier file (containerd 2.4.2,
// measured), so the text repeats what others require.
func (in *installer) dropInText(want NRI) ([]byte, error) {
	text := "# Written by forcefence-node install --required-plugins, and taken away by forcefence-node uninstall.\n"
	if in.Site.Runtime == containerd {
		root, err := readRoot(in.Site)
		if err != nil {
			return nil, err
		}
		const oldest = 2 // names plugins as we do
		text += fmt.Sprintf("version = %d\n\n", max(root.version, oldest))
	}
	k := kinds[in.Site.Runtime]
	keys := map[string]any{k.enable: true, k.required: want.Required, k.annotation: want.Annotation}
	values, err := toml.Marshal(keys)
	return fmt.Appendf(nil, "%s[%s]\n%s", text, k.table, values), err
}

// onlyValidator returns an error if a drop-in lacks its intended effect, or changes anything but the validator.
func onlyValidator(s Site, base, would runtimeConfig, want NRI) error {
	if !reflect.DeepEqual(would.nri, want) {
		return fmt.Errorf("the runtime would read %+v instead of %+v", would.nri, want)
	}
	if s.Runtime == crio {
		return nil // its whole configuration is text with comments
	}
	k := kinds[s.Runtime]
	var rest [2]map[string]any // what is beside the validator
	for i, text := range [][]byte{base.text, would.text} {
		if err := toml.Unmarshal(text, &rest[i]); err != nil {
			return err
		}
		delete(rest[i], "imports")
		plugins, _ := rest[i]["plugins"].(map[string]any)
		section, _ := plugins[nriPlugin].(map[string]any)
		validator, _ := section["default_validator"].(map[string]any)
		for _, key := range []string{k.enable, k.required, k.annotation} {
			delete(validator, key)
		}
	}
	if !reflect.DeepEqual(rest[0], rest[1]) {
		return errors.New("it would change more of the runtime's configuration than the validator")
	}
	return nil
}

// listIntolerant lists the node's exempt pods that the runtime would refuse while the plugin is missing, DaemonSets by
// their name.
func (in *installer) listIntolerant(ctx context.Context, annotation string) ([]string, error) {
	pods, err := in.pods(ctx, in.client, in.Config.NodeName)
	if err != nil {
		return nil, fmt.Errorf("listing the node's exempt pods: %w", err)
	}
	var names []string
	for i := range pods {
		pod := &pods[i]
		why := taint.ExemptionOf(pod, in.Config.TaintKey)
		if taint.IsTerminal(pod) || why == taint.NotExempt || toleratesMissing(pod, annotation) {
			continue
		}
		name := pod.Namespace + "/" + pod.Name
		if owner := metav1.GetControllerOfNoCopy(pod); owner != nil && owner.Kind == "DaemonSet" {
			name = pod.Namespace + "/" + owner.Name
		}
		names = append(names, fmt.Sprintf("%s (%s)", name, why))
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// toleratesMissing reads the annotation as NRI's validator does. The validator refuses a container with a value that
// does not parse, even while the plugin is present.
func toleratesMissing(pod *corev1.Pod, annotation string) bool {
	yes, err := strconv.ParseBool(pod.Annotations[annotation])
	return err == nil && yes
}

// listPods lists the node's pods. The Node authorizer lets a node list its own pods only.
func listPods(ctx context.Context, client rest.Interface, node string) ([]corev1.Pod, error) {
	var list corev1.PodList
	err := client.Get().Timeout(apiTimeout).Resource("pods").Param("fieldSelector", "spec.nodeName="+node).Do(ctx).
		Into(&list)
	return list.Items, err
}
