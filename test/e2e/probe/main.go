// Command probe is what the pods of the end-to-end tests run: it takes a lock that all nodes share, and writes to its
// volume and to a log that all nodes share, until it is ended. A lock that another one holds is logged and not waited
// for: it is what must never happen. With HOLD=BYTES in its environment it does not count on the volume: it writes that
// many random bytes there, unless they are there already, and logs what they sum up to.
//
//	probe SHARED-FOLDER [VOLUME]
package main

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Line is one of the shared log.
type Line struct {
	Time  time.Time `json:"time"`
	Node  string    `json:"node"`
	Boot  string    `json:"boot"`
	Pod   string    `json:"pod"` // namespace and name: the identity
	UID   string    `json:"uid"`
	Count int       `json:"count"`           // read from the volume, plus one
	Sum   string    `json:"sum,omitempty"`   // SHA-256 of what the volume holds
	Fault string    `json:"fault,omitempty"` // the lock was held by another one
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	shared, volume := os.Args[1], ""
	if len(os.Args) > 2 {
		volume = os.Args[2]
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return err
	}
	l := Line{
		Node: os.Getenv("NODE"), Boot: strings.TrimSpace(string(boot)),
		Pod: os.Getenv("NAMESPACE") + "/" + os.Getenv("POD"), UID: os.Getenv("POD_UID"),
	}
	log, err := os.OpenFile(filepath.Join(shared, "log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	lock, err := os.OpenFile(filepath.Join(shared, strings.ReplaceAll(l.Pod, "/", "_")+".lock"), os.O_CREATE|os.O_RDWR,
		0o644)
	if err != nil {
		return err
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		l.Fault = "lock: " + err.Error()
	}
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM, os.Interrupt)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	hold, counted := os.Getenv("HOLD"), volume
	if hold != "" {
		counted = ""
	}
	for {
		if l.Count, err = next(counted, l.Count); err != nil {
			return err
		}
		if hold != "" {
			if l.Sum, err = sum(volume, hold); err != nil {
				return err
			}
		}
		l.Time = time.Now().UTC()
		b, err := json.Marshal(l)
		if err != nil {
			return err
		}
		if _, err := log.Write(append(b, '\n')); err != nil {
			return err
		}
		select {
		case <-end:
			return nil
		case <-tick.C:
		}
	}
}

// next counts on the volume, where there is one.
func next(volume string, last int) (int, error) {
	if volume == "" {
		return last + 1, nil
	}
	file := filepath.Join(volume, "count")
	text, err := os.ReadFile(file)
	if err != nil && !os.IsNotExist(err) {
		return 0, err
	}
	n, _ := strconv.Atoi(strings.TrimSpace(string(text))) // none yet: 0
	if err := os.WriteFile(file+".new", fmt.Appendln(nil, n+1), 0o644); err != nil {
		return 0, err
	}
	return n + 1, os.Rename(file+".new", file)
}

// sum reads what the volume holds, and writes it first where it is not there.
func sum(volume, size string) (string, error) {
	file := filepath.Join(volume, "data")
	data, err := os.ReadFile(file)
	if os.IsNotExist(err) {
		n, err := strconv.Atoi(size)
		if err != nil {
			return "", err
		}
		data = make([]byte, n)
		rand.Read(data) // never fails
		f, err := os.Create(file)
		if err != nil {
			return "", err
		}
		defer f.Close()
		if _, err := f.Write(data); err != nil {
			return "", err
		}
		if err := f.Sync(); err != nil { // the disk is copied while it is mounted
			return "", err
		}
	} else if err != nil {
		return "", err
	}
	s := sha256.Sum256(data)
	return hex.EncodeToString(s[:]), nil
}
