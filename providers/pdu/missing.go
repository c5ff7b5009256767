package pdu

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gosnmp/gosnmp"

	"github.com/forcefence/forcefence/providers"
)

// isAbsent reports whether there is no value. The three types do not reliably distinguish a missing table from a
// missing outlet.
func isAbsent(v gosnmp.SnmpPDU) bool {
	return slices.Contains([]gosnmp.Asn1BER{gosnmp.NoSuchObject, gosnmp.NoSuchInstance, gosnmp.EndOfMibView}, v.Type)
}

// explainMissing returns why a strip has no value of an outlet: it has no such outlet, or not this table at all, or no
// such column in it. values are those that it gave, if any. If it answers no further question, missing is returned.
func (p *Provider) explainMissing(ctx context.Context, outlets []outlet, values []gosnmp.SnmpPDU, missing error) error {
	columns, numbers := p.mib.queryColumns(), make([]string, len(outlets))
	for i, o := range outlets {
		numbers[i] = o.number
	}
	if i := slices.IndexFunc(values, isAbsent); i >= 0 {
		numbers = numbers[i/len(columns):][:1]
		if of := i % len(columns); of > 0 { // its state is there
			return providers.WithClass(providers.ErrPermanent, fmt.Errorf("the strip reports the state of outlet %s, "+
				"but no %s (%s), without which an off outlet proves nothing: its firmware is too old for mib %s, or "+
				"the user may not read that column", numbers[0], columns[of].name, columns[of].oid, p.cfg.MIB))
		}
	}
	own, err := p.findTables(ctx, outlets[0], p.cfg.MIB)
	if err != nil {
		return missing
	}
	if first, there := own[p.cfg.MIB]; there {
		return providers.WithClass(providers.ErrNotFound, fmt.Errorf("the strip has no outlet %s; its first is %s",
			strings.Join(numbers, " or "), first))
	}
	why := fmt.Sprintf("the strip shows no outlets of mib %s (%s)", p.cfg.MIB, p.mib.state.oid)
	if others, err := p.findTables(ctx, outlets[0], slices.Sorted(maps.Keys(mibs))...); err == nil && len(others) > 0 {
		why += fmt.Sprintf("; it has those of %s: set mib accordingly", joinKeys(others))
	} else {
		why += ": it switches no outlets, or has another MIB, or the user may not read that table"
	}
	return providers.WithClass(providers.ErrPermanent, errors.New(why))
}

// findTables returns the first outlet in the table of each MIB that a strip has.
func (p *Provider) findTables(ctx context.Context, at outlet, names ...string) (map[string]string, error) {
	found, asked := map[string]string{}, make([]gosnmp.SnmpPDU, len(names))
	for i, name := range names {
		asked[i] = gosnmp.SnmpPDU{Name: mibs[name].state.oid, Type: gosnmp.Null}
	}
	values, err := p.exchangeMessage(ctx, at, gosnmp.GetNextRequest, asked)
	if errors.Is(err, providers.ErrNotFound) { // as SNMP version 1 ends a table
		return found, nil
	}
	if err != nil {
		return nil, err
	}
	for i, name := range names {
		number, inside := strings.CutPrefix(values[i].Name, mibs[name].state.oid+".")
		if inside && !isAbsent(values[i]) {
			if found[name], err = mibs[name].parseNumber(number); err != nil {
				found[name] = "unreadable"
			}
		}
	}
	return found, nil
}
