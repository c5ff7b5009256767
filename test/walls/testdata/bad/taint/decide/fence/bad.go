package fence

import (
	_ "os"

	_ "github.com/forcefence/forcefence/taint/decide/evict"
)
