package fence

import (
	"os"
	"time"
)

var _, _ = os.Getpid, time.Now // a test is free
