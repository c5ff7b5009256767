package binaries

import _ "github.com/forcefence/forcefence/test/kit"
