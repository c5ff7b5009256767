package app

import (
	_ "html/template"

	"github.com/google/cel-go/cel"

	_ "github.com/forcefence/forcefence/test/kit"
)

var _ = cel.AuthoringPrompt
