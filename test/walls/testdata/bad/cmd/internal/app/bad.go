package app

import (
	_ "html/template"

	"github.com/google/cel-go/cel"
	_ "go.opentelemetry.io/otel/trace"

	_ "github.com/forcefence/forcefence/test/kit"
)

var _ = cel.AuthoringPrompt
