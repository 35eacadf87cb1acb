"""Has LibreOffice open the document $D, write something into it, and store it where it is. LibreOffice is a child of this one."""
import os, subprocess, sys, time, uno
from com.sun.star.beans import PropertyValue

home, pipe = os.environ['HOME'], f'grantfs-{os.getpid()}'
office = subprocess.Popen(
    ['soffice', '--headless', '--norestore', '--nologo', f'-env:UserInstallation=file://{home}/office', f'--accept=pipe,name={pipe};urp'],
    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
local = uno.getComponentContext()
resolver = local.ServiceManager.createInstanceWithContext('com.sun.star.bridge.UnoUrlResolver', local)
for attempt in range(600):
    try:
        context = resolver.resolve(f'uno:pipe,name={pipe};urp;StarOffice.ComponentContext')
        break
    except Exception:
        if office.poll() is not None or attempt == 599:
            sys.exit('soffice has ended')
        time.sleep(0.05)
desktop = context.ServiceManager.createInstanceWithContext('com.sun.star.frame.Desktop', context)
hidden = PropertyValue()
hidden.Name, hidden.Value = 'Hidden', True
try:
    document = desktop.loadComponentFromURL(f'file://{os.environ["D"]}', '_blank', 0, (hidden,))
    document.Text.insertString(document.Text.End, 'and more', False)
    document.store()
    document.close(True)
    result = 0
except Exception as error:
    result = f'{error}'
try:
    desktop.terminate()
except Exception:
    pass
office.wait(20)
sys.exit(result)
