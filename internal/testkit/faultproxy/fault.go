package faultproxy

import "time"

func (p *Proxy) cutOne() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.counts.Cut++
}

// held reports whether a direction delivers nothing at the moment. The returned channel closes when
// the fault changes.
func (p *Proxy) held(d Direction) (bool, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fault.Hold&d != 0, p.changed
}

// latency returns the delay of a piece of data that is sent now.
func (p *Proxy) latency() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	d := p.fault.Latency
	if j := p.fault.Jitter; j > 0 {
		d += time.Duration(p.rand.Int64N(int64(j)))
	}
	return d
}

// transfer returns how long n bytes take to pass.
func (p *Proxy) transfer(n int) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fault.Bandwidth <= 0 {
		return 0
	}
	return time.Duration(n) * time.Second / time.Duration(p.fault.Bandwidth)
}

// through returns the part of a piece of data that the proxy delivers, and false if the proxy must
// cut the connection after that part.
func (p *Proxy) through(d Direction, data []byte) (part []byte, whole bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	chance, delivered := p.fault.CutUp, &p.counts.Up
	if d == Down {
		chance, delivered = p.fault.CutDown, &p.counts.Down
	}
	switch {
	case chance > 0 && p.rand.Float64() < chance:
		return nil, false
	case d == Down && p.left > 0 && int64(len(data)) >= p.left:
		data, p.left = data[:p.left], 0
		*delivered += int64(len(data))
		return data, false
	case d == Down && p.left > 0:
		p.left -= int64(len(data))
	}
	*delivered += int64(len(data))
	return data, true
}
