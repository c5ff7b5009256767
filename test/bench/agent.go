package main

import (
	"context"
	"fmt"
	"log/slog"
	"os/exec"
	"strings"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/ipmi"
	"github.com/forcefence/forcefence/test/ipmisim"
)

// agent asks one machine that is on for its state, on a warm connection as forcefence does, and by the matching program of others as
// a process. Both ask the same BMC, which is OpenIPMI's simulator in front of a QEMU: what that takes is in both times.
func agent(ctx context.Context, r *runner) error {
	if missing := ipmisim.Missing(); missing != "" {
		r.say("left out: %s", missing)
		return nil
	}
	bmc, err := ipmisim.Start(ctx, ipmisim.Options{})
	if err != nil {
		return err
	}
	defer func() { _ = bmc.Stop() }() // what is left ends with this process
	if err := bmc.SetPower(ctx, true); err != nil {
		return err
	}
	cfg := ipmi.NewConfig()
	cfg.Username, cfg.PasswordFile = ipmisim.Operator, bmc.PasswordFile()
	p, err := cfg.New(providers.Options{Name: "bench", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	defer func() { _ = p.(providers.Closer).Close(ctx) }()
	target := providers.Target{Node: "n1", ID: bmc.Address(), SystemUUID: bmc.UUID()}
	ours := func() error {
		if a := providers.Ask(ctx, p, "bench", target, time.Now); a.State != providers.PowerOn {
			return fmt.Errorf("got %s, %v", a.State, a.Err)
		}
		return nil
	}
	host, port, _ := strings.Cut(bmc.Address(), ":")
	others := []struct {
		program string
		ask     func() error
	}{
		{"fence_ipmilan", func() error { // reads its options, the password among them, from its input
			return said(ctx, "Status: ON", fmt.Sprintf("action=status\nip=%s\nipport=%s\nlanplus=1\ncipher=3\nprivlvl=operator\nusername=%s\npassword_script=cat %s\n",
				host, port, ipmisim.Operator, bmc.PasswordFile()), "fence_ipmilan")
		}},
		{"ipmitool", func() error {
			return said(ctx, "Chassis Power is on", "", "ipmitool", "-I", "lanplus", "-C", "3", "-L", "OPERATOR", "-H", host, "-p", port,
				"-U", ipmisim.Operator, "-f", bmc.PasswordFile(), "chassis", "power", "status")
		}},
	}
	if err := ours(); err != nil { // logs in
		return err
	}
	for _, o := range others {
		if _, err := exec.LookPath(o.program); err != nil {
			r.say("%s is left out: it is not installed", o.program)
			continue
		}
		by := map[side][]float64{}
		for _, s := range turns(max(r.o.pairs, 7), floorSide, oursSide) {
			f := ours
			if s == floorSide {
				f = o.ask
			}
			begun := time.Now()
			if err := f(); err != nil {
				return fmt.Errorf("%s: %s: %w", o.program, s, err)
			}
			by[s] = append(by[s], float64(time.Since(begun))/float64(time.Millisecond))
		}
		r.add(r.figure("one machine's state by ipmi, warm; floor: "+o.program+" as a process", "ms", by))
		r.add(figure(o.program+" takes, times ours, pair by pair", "x", ratios(by[floorSide], by[oursSide])).atLeast(10))
	}
	return nil
}

// said runs a program and wants these words in what it says.
func said(ctx context.Context, want, input string, command ...string) error {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), want) {
		return fmt.Errorf("got %q, %v", out, err)
	}
	return nil
}
