package view

import (
	"fmt"
	_ "net/http"

	_ "github.com/google/cel-go/cel"

	_ "github.com/forcefence/forcefence/taint/kube"
)

var (
	_ = fmt.Sprintf // a text is what a view is for
	_ = fmt.Println
	_ = fmt.Fprintf
)
