package admit

import (
	_ "fmt"

	_ "golang.org/x/time/rate"
)
