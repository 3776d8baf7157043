package httpapi

func (a *api) logs() {}
