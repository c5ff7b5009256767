package judge

import (
	_ "github.com/forcefence/forcefence/taint"
	_ "github.com/forcefence/forcefence/test/cluster"
	_ "github.com/forcefence/forcefence/test/kit"
)
