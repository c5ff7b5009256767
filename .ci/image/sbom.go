package main

import (
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"strings"
)

// completeSBOM adds to ko's SBOM of a program what ko leaves out: Go's own library, and the modules' licences.
func (b *builder) completeSBOM(from, to, program string) error {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	var doc map[string]any
	if err := json.Unmarshal(text, &doc); err != nil {
		return err
	}
	const none = "NOASSERTION"
	std, image := "SPDXRef-Package-std-"+info.GoVersion, doc["packages"].([]any)[0].(map[string]any)["SPDXID"]
	packages := append(doc["packages"].([]any), map[string]any{"SPDXID": std, "name": "std",
		"versionInfo": info.GoVersion, "downloadLocation": none, "filesAnalyzed": false, "copyrightText": none,
		"licenseConcluded": none, "externalRefs": []any{map[string]any{"referenceCategory": "PACKAGE-MANAGER",
			"referenceType": "purl", "referenceLocator": "pkg:golang/std@" + strings.TrimPrefix(info.GoVersion,
				"go")}}})
	doc["relationships"] = append(doc["relationships"].([]any), map[string]any{"spdxElementId": image,
		"relationshipType": "CONTAINS", "relatedSpdxElement": std})
	for _, m := range append(info.Deps, &debug.Module{Path: "std", Version: info.GoVersion}) {
		names := b.licences[m.Path+"@"+m.Version]
		i := slices.IndexFunc(packages, func(p any) bool { return p.(map[string]any)["name"] == m.Path })
		if len(names) == 0 || i < 0 {
			return fmt.Errorf("%s@%s is linked, but it has no licence, or is not in ko's SBOM", m.Path, m.Version)
		}
		packages[i].(map[string]any)["licenseDeclared"] = strings.Join(names, " AND ")
	}
	doc["packages"] = packages
	text, err = json.MarshalIndent(doc, "", " ")
	return errors.Join(err, os.WriteFile(to, append(text, '\n'), 0o644))
}
