package httpapi

func (a *api) keyring() {}
