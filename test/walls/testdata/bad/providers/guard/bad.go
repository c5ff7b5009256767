package guard

import (
	_ "github.com/forcefence/forcefence/providers/remote"
)
