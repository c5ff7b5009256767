// Package sbd tests providers/watchdog with the real sbd and a hardware watchdog: a QEMU guest with an i6300esb runs
// sbd on a disk that it shares with the test, and is reset by a message, or because sbd or the disk is broken.
//
// It needs sbd, QEMU, and a kernel of Debian with its modules, in the folder that FORCEFENCE_GUEST_ROOT names. It runs
// as root, because sbd refuses files: the disk is a loop device. `make sbd` runs it, alone: its times are real.
package sbd
