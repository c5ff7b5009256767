package datacenter

// RequestReset is what a BMC does on ForceOff and On, without the network, so that delays can run in synctest.
func RequestReset(m *Machine, to State) bool {
	delay := m.dc.opts.PowerOffDelay
	if to == On {
		delay = m.dc.opts.PowerOnDelay
	}
	return m.request(to, delay)
}
