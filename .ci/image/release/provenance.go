package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"

	slsa "github.com/in-toto/attestation/go/predicates/provenance/v1"
	intoto "github.com/in-toto/attestation/go/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/forcefence/forcefence/.ci/image/internal/linked"
	"github.com/forcefence/forcefence/.ci/image/internal/oci"
)

// What the provenance says about the builder. That machine is not supervised: it is SLSA's build level 1.
const (
	builder   = "https://" + project + "/blob/main/docs/release.md#whoever-has-the-key"
	buildType = "https://" + project + "/blob/main/docs/release.md#cut-one"
)

// provenance is an in-toto statement in SLSA's words about all files that are written by now and the images: who made
// them of what. It has no time and no machine's name: the same sources give the same bytes.
func (r *release) provenance(ctx context.Context, pictures []*picture) ([]byte, error) {
	files, err := r.digests()
	if err != nil {
		return nil, err
	}
	var subjects []subject
	for _, p := range pictures {
		subjects = append(subjects, subjectOf(r.repository()+":"+r.version+p.suffix, p.digest))
	}
	for _, name := range sorted(files) {
		subjects = append(subjects, subject{name, map[string]string{"sha256": files[name]}})
	}
	parameters, err := structpb.NewStruct(
		map[string]any{"version": r.version, "repository": r.repository(), "rehearsal": r.rehearsal,
			"agents": r.agents})
	if err != nil {
		return nil, err
	}
	made, err := r.madeOf(ctx, pictures[0])
	if err != nil {
		return nil, err
	}
	predicate := &slsa.Provenance{
		BuildDefinition: &slsa.BuildDefinition{BuildType: buildType, ExternalParameters: parameters,
			ResolvedDependencies: made},
		RunDetails: &slsa.RunDetails{Builder: &slsa.Builder{Id: builder}},
	}
	if err := predicate.Validate(); err != nil {
		return nil, err
	}
	text, err := protojson.Marshal(predicate)
	if err != nil {
		return nil, err
	}
	var compact bytes.Buffer // protojson varies its spaces
	if err := json.Compact(&compact, text); err != nil {
		return nil, err
	}
	return statement(predicateSLSA, compact.Bytes(), subjects...)
}

// madeOf are the sources, Go and the modules.
func (r *release) madeOf(ctx context.Context, p *picture) ([]*intoto.ResourceDescriptor, error) {
	source := &intoto.ResourceDescriptor{Uri: "git+https://" + project,
		Digest: map[string]string{"gitCommit": r.revision}}
	if !r.rehearsal {
		source.Uri += "@refs/tags/" + r.version
	}
	if r.status != "" {
		var err error
		if source.Annotations, err = structpb.NewStruct(map[string]any{"changed": true}); err != nil {
			return nil, err
		}
	}
	all := []*intoto.ResourceDescriptor{source}
	seen := map[string]bool{}
	for _, platform := range oci.Platforms {
		img, err := oci.Of(p.index, platform)
		if err != nil {
			return nil, err
		}
		files, err := oci.Files(img, ours)
		if err != nil {
			return nil, err
		}
		for _, file := range sorted(files) {
			modules, err := linked.In(bytes.NewReader(files[file]))
			if err != nil {
				return nil, err
			}
			for _, m := range modules {
				if seen[m.Name()] {
					continue
				}
				seen[m.Name()] = true
				d := &intoto.ResourceDescriptor{Uri: "pkg:golang/" + m.Name()}
				if m.Path != linked.Std {
					sum, err := dirHash(m.Sum)
					if err != nil {
						return nil, fmt.Errorf("%s: %w", m.Name(), err)
					}
					d.Digest = map[string]string{"dirHash": sum}
				}
				all = append(all, d)
			}
		}
	}
	ko, err := exec.CommandContext(ctx, "go", "-C", r.source+"/.ci/image", "list", "-m", "github.com/google/ko").
		Output()
	if err != nil {
		return nil, fmt.Errorf("find ko's version: %w", err)
	}
	return append(all, &intoto.ResourceDescriptor{Uri: "pkg:golang/" + strings.Join(strings.Fields(string(ko)), "@")}),
		nil
}
