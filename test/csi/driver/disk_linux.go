package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// errBusy is the error for a disk whose lock is held: it is mounted.
var errBusy = errors.New("disk is mounted")

// lockDisk opens a disk's file with the lock that its mount will hold (package comment).
func lockDisk(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	for {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err == nil {
		return f, nil
	}
	f.Close()
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, errBusy
	}
	return nil, fmt.Errorf("lock %s: %w", path, err)
}

// awaitFree returns once the disk's lock is free. The kernel does not report when a loop device is gone, so it polls.
func awaitFree(ctx context.Context, path string) error {
	t := time.NewTicker(10 * time.Millisecond)
	defer t.Stop()
	for {
		f, err := lockDisk(path)
		if err == nil {
			return f.Close()
		}
		if !errors.Is(err, errBusy) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("still mounted in another place: %w", err)
		case <-t.C:
		}
	}
}

// mountDisk mounts a locked disk through a loop device that goes when the mount goes, or when we are killed before.
func mountDisk(disk *os.File, path string) error {
	loop, err := loopDevice(disk)
	if err != nil {
		return err
	}
	defer loop.Close() // after the mount: a device with autoclear goes with its last user
	return unix.Mount(loop.Name(), path, "ext4", 0, "")
}

func loopDevice(disk *os.File) (*os.File, error) {
	ctl, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer ctl.Close()
	for range 100 { // another node may take the device that is offered
		n, err := unix.IoctlRetInt(int(ctl.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, fmt.Errorf("asking for a loop device: %w", err)
		}
		name := fmt.Sprintf("/dev/loop%d", n)
		// A /dev of the container's own lacks devices that came later; 7 is the loop devices' major number.
		if err := unix.Mknod(name, unix.S_IFBLK|0o660, int(unix.Mkdev(7, uint32(n)))); err != nil &&
			!errors.Is(err, unix.EEXIST) {
			return nil, fmt.Errorf("make %s: %w", name, err)
		}
		loop, err := os.OpenFile(name, os.O_RDWR, 0)
		if err != nil {
			return nil, err
		}
		err = unix.IoctlLoopConfigure(int(loop.Fd()), &unix.LoopConfig{
			Fd: uint32(disk.Fd()), Info: unix.LoopInfo64{Flags: unix.LO_FLAGS_AUTOCLEAR},
		})
		if err == nil {
			return loop, nil
		}
		loop.Close()
		if !errors.Is(err, unix.EBUSY) {
			return nil, fmt.Errorf("set up %s: %w", name, err)
		}
	}
	return nil, errors.New("no loop device is free")
}

// mounted reports whether something is mounted at path; a path that does not exist has nothing.
func mounted(path string) (bool, error) {
	var st unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW, 0, &st)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look at %s: %w", path, err)
	}
	if st.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT == 0 {
		return false, errors.New("this kernel does not tell mount points (Linux 5.8 does)")
	}
	return st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0, nil
}

func unmount(path string) error {
	if err := unix.Unmount(path, 0); err != nil {
		return fmt.Errorf("unmount %s: %w", path, err)
	}
	return nil
}
