package controller

import "time"

var _ = time.Now // the controller has a clock
