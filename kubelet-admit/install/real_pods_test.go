package install

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/forcefence/forcefence/kubelet-admit/admit"
	"github.com/forcefence/forcefence/test/kit"
)

// serveImage serves one image, whose program does nothing, under every name, and returns its address.
func serveImage(t *testing.T, program string) string {
	t.Helper()
	text, err := os.ReadFile(program)
	kit.Must(t, err)
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	kit.Must(t, w.WriteHeader(&tar.Header{Name: "pause", Mode: 0o755, Size: int64(len(text))}))
	_, err = w.Write(text)
	kit.Must(t, errors.Join(err, w.Close()))
	blobs := map[string][]byte{}
	put := func(kind string, content []byte) map[string]any {
		digest := fmt.Sprintf("sha256:%x", sha256.Sum256(content))
		blobs[digest] = content
		return map[string]any{"mediaType": "application/vnd.oci.image." + kind, "digest": digest, "size": len(content)}
	}
	object := func(kind string, of map[string]any) map[string]any {
		text, err := json.Marshal(of)
		kit.Must(t, err)
		return put(kind, text)
	}
	files := put("layer.v1.tar", layer.Bytes())
	config := object("config.v1+json", map[string]any{
		"architecture": "amd64", "os": "linux", "config": map[string]any{"Entrypoint": []string{"/pause"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []any{files["digest"]}},
	})
	manifest := object("manifest.v1+json", map[string]any{
		"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "config": config,
		"layers": []any{files},
	})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		digest := path.Base(req.URL.Path)
		if path.Base(path.Dir(req.URL.Path)) == "manifests" {
			digest = manifest["digest"].(string)
			w.Header().Set("Content-Type", manifest["mediaType"].(string))
		}
		if blobs[digest] == nil && req.URL.Path != "/v2/" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.Header().Set("Docker-Content-Digest", digest)
		http.ServeContent(w, req, "", time.Time{}, bytes.NewReader(blobs[digest]))
	}))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

// fields are a message of the CRI's by the numbers of its fields, which never change: text, a number, a message, or a
// map of texts.
type fields map[uint64]any

func (f fields) encode() (out []byte) {
	add := func(number uint64, text []byte) {
		const bytes = 2 // the wire's type
		out = binary.AppendUvarint(binary.AppendUvarint(out, number<<3|bytes), uint64(len(text)))
		out = append(out, text...)
	}
	for number, value := range f {
		switch v := value.(type) {
		case string:
			add(number, []byte(v))
		case int:
			out = binary.AppendUvarint(binary.AppendUvarint(out, number<<3), uint64(v))
		case fields:
			add(number, v.encode())
		case map[string]string:
			for key, text := range v {
				add(number, fields{1: key, 2: text}.encode())
			}
		}
	}
	return out
}

// codec passes messages on as bytes.
type codec struct{}

func (codec) Name() string { return "" }

func (codec) Marshal(v any) ([]byte, error) { return v.([]byte), nil }

func (codec) Unmarshal(data []byte, v any) error {
	*v.(*[]byte) = bytes.Clone(data)
	return nil
}

// callRuntime calls the runtime as its kubelet does. It returns the answer's first field, which is an id.
func (r *runtimeLab) callRuntime(service, method string, request fields) (string, error) {
	r.t.Helper()
	conn, err := grpc.NewClient("unix://"+r.inDir("g.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	kit.Must(r.t, err)
	defer conn.Close()
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	var answer []byte
	if err := conn.Invoke(ctx, "/runtime.v1."+service+"/"+method, request.encode(), &answer, grpc.ForceCodec(codec{}),
		grpc.WaitForReady(true)); err != nil || len(answer) < 2 {
		return "", err
	}
	return string(answer[2 : 2+int(answer[1])]), nil // an id's length fits one byte
}

// checkPods creates pods, each with a container. An ordinary pod is held if the hook runs. If the hook is missing, and
// the runtime requires it, only a pod that tolerates that gets its container.
func (r *runtimeLab) checkPods(when string, held, refused bool) {
	r.t.Helper()
	const source = "kubernetes.io/config.source"
	for name, annotations := range map[string]map[string]string{
		"ordinary": nil, "static": {source: "file"}, "tolerant": {source: "file", TolerateAnnotation: "true"},
	} {
		pod, container := "", ""
		if held && name == "ordinary" {
			pod = "forcefence: held on node n1: " + string(admit.NodeUnread)
		}
		if refused && name != "tolerant" {
			container = `required plugin "forcefence" not present`
		}
		if got := r.startPod(name, annotations); !isError(got.pod, pod) || !isError(got.container, container) {
			r.t.Errorf("%s, the %s pod: %v; of its container: %v; want %q, %q", when, name, got.pod, got.container, pod,
				container)
		}
	}
}

// isError reports whether the error has the text, or is none for "".
func isError(err error, text string) bool {
	return err == nil && text == "" || err != nil && text != "" && strings.Contains(err.Error(), text)
}

// podResult is what became of a pod and of its container: errors.
type podResult struct{ pod, container error }

// startPod creates a pod in the host's namespaces, and its container, which is not started. It removes both again.
func (r *runtimeLab) startPod(name string, annotations map[string]string) (out podResult) {
	r.t.Helper()
	r.attempts++   // a held one may keep its name
	const node = 2 // of a namespace
	host := fields{1: node, 2: node, 3: node}
	pod := fields{
		1: fields{1: name, 2: "uid-" + name, 3: "ns", 4: r.attempts}, 3: r.inDir("log-" + name), 7: annotations,
		8: fields{1: r.cgroup, 2: fields{1: host}},
	}
	image := fields{1: r.image, 18: r.image}
	if _, err := r.callRuntime("ImageService", "PullImage", fields{1: image}); err != nil {
		r.t.Fatalf("pulling %s: %v", r.image, err)
	}
	id, err := r.callRuntime("RuntimeService", "RunPodSandbox", fields{1: pod})
	if err != nil {
		return podResult{pod: err}
	}
	container, err := r.callRuntime("RuntimeService", "CreateContainer",
		fields{1: id, 2: fields{1: fields{1: "c"}, 2: image, 15: fields{2: fields{3: host}}}, 3: pod})
	if err == nil {
		_, bad := r.callRuntime("RuntimeService", "RemoveContainer", fields{1: container})
		kit.Must(r.t, bad)
	}
	for _, method := range []string{"StopPodSandbox", "RemovePodSandbox"} {
		_, bad := r.callRuntime("RuntimeService", method, fields{1: id})
		kit.Must(r.t, bad)
	}
	return podResult{container: err}
}

// removeCgroups removes what the pods' cgroups leave.
func (r *runtimeLab) removeCgroups() {
	for _, pattern := range []string{"/sys/fs/cgroup" + r.cgroup, "/sys/fs/cgroup/*" + r.cgroup} {
		tops, _ := filepath.Glob(pattern)
		for _, top := range tops {
			var dirs []string
			_ = filepath.WalkDir(top, func(file string, e fs.DirEntry, err error) error {
				if err == nil && e.IsDir() {
					dirs = append(dirs, file)
				}
				return nil
			})
			for _, dir := range slices.Backward(dirs) {
				_ = os.Remove(dir)
			}
		}
	}
}
