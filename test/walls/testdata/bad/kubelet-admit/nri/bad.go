package nri

import _ "github.com/forcefence/forcefence/providers"
