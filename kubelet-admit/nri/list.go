package nri

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// maxObject limits the bytes of one object: etcd refuses larger ones.
const maxObject = 16 << 20

// readPodList reads the API server's answer to a list of pods, and calls see with each pod. It holds one pod at a time:
// the whole list of a node with 500 pods needs 10 MB, which a process never gives back completely. An answer that is
// cut, or is no list of pods, is an error, also after calls of see.
func readPodList(answer io.Reader, see func(*corev1.Pod)) (version string, err error) {
	r := bufio.NewReader(answer)
	magic, err := r.Peek(4)
	if err != nil {
		return "", err
	}
	var kind runtime.TypeMeta
	var meta metav1.ListMeta
	if string(magic) == "k8s\x00" {
		_, _ = r.Discard(len(magic))
		ofList := func(field protowire.Number, value io.Reader, size uint64) error {
			switch field {
			case 1:
				return unmarshalValue(value, size, &meta)
			case 2:
				pod := &corev1.Pod{}
				if err := unmarshalValue(value, size, pod); err != nil {
					return err
				}
				see(pod)
			}
			return nil
		}
		err = readFields(r, func(field protowire.Number, value io.Reader, size uint64) error { // of runtime.Unknown
			switch field {
			case 1:
				return unmarshalValue(value, size, &kind)
			case 2:
				return readFields(bufio.NewReader(value), ofList)
			}
			return nil
		})
	} else {
		var list corev1.PodList
		err = json.NewDecoder(r).Decode(&list)
		kind, meta = runtime.TypeMeta{APIVersion: list.APIVersion, Kind: list.Kind}, list.ListMeta
		for i := range list.Items {
			see(&list.Items[i])
		}
	}
	if err == nil && (kind.APIVersion != "v1" || kind.Kind != "PodList" || meta.ResourceVersion == "") {
		err = fmt.Errorf("the answer is a %s %s of version %q", kind.APIVersion, kind.Kind, meta.ResourceVersion)
	}
	return meta.ResourceVersion, err
}

// readFields reads a protobuf message up to its end, and calls see with each field that has bytes. What see leaves of
// its value is skipped. A value that is cut is an error, after the call.
func readFields(r *bufio.Reader, see func(field protowire.Number, value io.Reader, size uint64) error) error {
	for {
		if _, err := r.Peek(1); errors.Is(err, io.EOF) {
			return nil
		}
		tag, err := binary.ReadUvarint(r)
		if err != nil {
			return err
		}
		field, kind := protowire.DecodeTag(tag)
		size, err := binary.ReadUvarint(r)
		if err != nil {
			return io.ErrUnexpectedEOF
		}
		switch kind {
		case protowire.VarintType: // it has no bytes
		case protowire.BytesType:
			value := &io.LimitedReader{R: r, N: int64(size)}
			if err := see(field, value, size); err != nil {
				return err
			}
			if _, err := io.Copy(io.Discard, value); err != nil {
				return err
			}
			if value.N != 0 { // it was cut, or is longer than an int64 says
				return io.ErrUnexpectedEOF
			}
		default:
			return fmt.Errorf("field %d has the wire type %d", field, kind)
		}
	}
}

func unmarshalValue(value io.Reader, size uint64, into interface{ Unmarshal([]byte) error }) error {
	if size > maxObject {
		return fmt.Errorf("an object of %d bytes", size)
	}
	var text bytes.Buffer
	text.Grow(int(size))
	if _, err := text.ReadFrom(value); err != nil {
		return err
	}
	return into.Unmarshal(text.Bytes())
}
